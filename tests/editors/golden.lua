-- Play the golden sequences in a folder through the plugin's reducer: `nvim --clean -l golden.lua PLUGIN FOLDER`.
-- Prints a JSON object of what each came to, on standard error as `print` does there.
package.path = arg[1] .. "/lua/?.lua;" .. package.path
local transcript = require("agentls.transcript")

local found = {}
for name in vim.fs.dir(arg[2]) do
  local file = assert(io.open(vim.fs.joinpath(arg[2], name)))
  -- As Neovim's own client reads what a server sends: nulls in objects are dropped.
  local golden = vim.json.decode(file:read("a"), { luanil = { object = true } })
  file:close()
  local held = transcript.new()
  local said = {}
  for _, step in ipairs(golden.steps) do
    local verb, params = next(step)
    table.insert(said, held[verb](held, params) or "ok")
  end
  local blocks = {}
  for _, id in ipairs(held:all()) do
    local block = vim.deepcopy(held:block(id))
    block.body = held:body(id)
    table.insert(blocks, block)
  end
  found[name] = { said = said, blocks = blocks }
end
print(vim.json.encode(found))
