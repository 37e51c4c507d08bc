-- Play the golden sequences in a folder through the plugin's reducer: `nvim --clean -l golden.lua PLUGIN FOLDER`.
-- Prints a JSON object of what each came to, on standard error as `print` does there.
package.path = arg[1] .. "/lua/?.lua;" .. package.path
local transcript = require("agentls.transcript")

--- Follow the bodies by the changes that the reducer tells, as a view does that never looks at what has not changed.
--- The bodies as they are drawn then, and the ids of those that should read otherwise, put into `lost`.
local function follow(drawn, held, lost)
  local changes = held:take()
  if changes.reset then
    drawn = {}
  end
  for _, id in ipairs(changes.dropped) do
    drawn[id] = nil
  end
  for _, id in ipairs(changes.order) do
    local how = changes.blocks[id]
    if type(how) == "table" and drawn[id] then
      drawn[id] = drawn[id] .. table.concat(how)
    elseif how ~= "head" or not drawn[id] then
      drawn[id] = held:body(id)
    end
  end
  for _, id in ipairs(held:all()) do
    if drawn[id] ~= held:body(id) then
      table.insert(lost, id)
    end
  end
  for id in pairs(drawn) do
    if not held:block(id) then
      table.insert(lost, id)
    end
  end
  return drawn
end

local found = {}
for name in vim.fs.dir(arg[2]) do
  local file = assert(io.open(vim.fs.joinpath(arg[2], name)))
  -- As Neovim's own client reads what a server sends: nulls in objects are dropped.
  local golden = vim.json.decode(file:read("a"), { luanil = { object = true } })
  file:close()
  local held = transcript.new()
  local said, drawn, lost = {}, {}, {}
  for _, step in ipairs(golden.steps) do
    local verb, params = next(step)
    table.insert(said, held[verb](held, params) or "ok")
    if #said % 3 == 0 then -- What comes between two looks is told as one.
      drawn = follow(drawn, held, lost)
    end
  end
  follow(drawn, held, lost)
  local blocks = {}
  for _, id in ipairs(held:all()) do
    local block = vim.deepcopy(held:block(id))
    block.body = held:body(id)
    table.insert(blocks, block)
  end
  found[name] = { said = said, blocks = blocks, lost = lost }
end
print(vim.json.encode(found))
