--- The blocks of an agent as a client holds them: a pure reducer of attach answers, frames, states and pages.
---
--- A body is kept as its pieces and joined when it is read, so that a long stream is not copied for every word of it.

local M = {}

---@class agentls.Changes
---@field reset boolean All blocks were forgotten first.
---@field state boolean The agent's state has changed.
---@field dropped string[]
---@field order string[] The changed blocks that are there, in the order in which they changed.
---@field blocks table<string, "whole"|"head"|string[]> All of it, its facts only, or the texts that were appended.

---@class agentls.Held
---@field block agentls.Block Its body is not kept up to date: |agentls.Transcript:body|.
---@field pieces string[]
---@field size integer UTF-8 bytes of the body.

---@class agentls.Transcript
---@field epoch string?
---@field rev integer?
---@field before integer[]? Where older blocks end.
---@field agent agentls.AgentState?
---@field private held table<string, agentls.Held>
---@field private ids string[] In the order in which they stand.
---@field private changes agentls.Changes
local Transcript = {}
Transcript.__index = Transcript

---@return agentls.Changes
local function no_changes()
  return { reset = false, state = false, dropped = {}, order = {}, blocks = {} }
end

---@return agentls.Transcript
function M.new()
  return setmetatable({ held = {}, ids = {}, changes = no_changes() }, Transcript)
end

---@param left integer[]
---@param right integer[]
local function stands_before(left, right)
  if left[1] ~= right[1] then
    return left[1] < right[1]
  end
  return left[2] < right[2]
end

--- Of two blocks at one place, the one with the lower id stands first, as it does for the server.
---@param left agentls.Block
---@param right agentls.Block
local function block_before(left, right)
  if stands_before(left.order, right.order) then
    return true
  end
  return not stands_before(right.order, left.order) and left.id < right.id
end

-- What is held ------------------------------------------------------------------------------------------------------

--- The facts of a block.
---@param id string
---@return agentls.Block?
function Transcript:block(id)
  local held = self.held[id]
  return held and held.block
end

--- The whole body of a block as far as it is drawn.
---@param id string
---@return string
function Transcript:body(id)
  local held = self.held[id]
  if #held.pieces > 1 then
    held.pieces = { table.concat(held.pieces) }
  end
  return held.pieces[1] or ""
end

--- The index of the first block that does not stand before `block`.
---@param block agentls.Block
---@return integer
function Transcript:_index(block)
  local low, high = 1, #self.ids + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if block_before(self.held[self.ids[middle]].block, block) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

--- The block that stands after one, or nil.
---@param id string
---@return string?
function Transcript:after(id)
  return self.ids[self:_index(self.held[id].block) + 1]
end

--- The ids of all blocks, in the order in which they stand.
---@return string[]
function Transcript:all()
  return self.ids
end

-- Ops ---------------------------------------------------------------------------------------------------------------

function Transcript:_changed(id, how)
  local blocks = self.changes.blocks
  local was = blocks[id]
  if not was then
    table.insert(self.changes.order, id)
  end
  if was == "whole" or how == "whole" or (was and type(was) ~= type(how)) then
    blocks[id] = "whole"
  elseif type(how) == "table" and was then
    table.insert(was, how[1])
  else
    blocks[id] = how
  end
end

function Transcript:_put(op)
  local put = op.block
  local held = self.held[put.id]
  if not held then
    if self.before and stands_before(put.order, self.before) then
      return -- The page that holds it will bring it.
    end
    held = { block = { id = put.id, order = put.order }, pieces = {}, size = 0 }
    self.held[put.id] = held
    table.insert(self.ids, self:_index(put), put.id)
  end
  for name, value in pairs(put) do
    if name ~= "body" then
      held.block[name] = value
    end
  end
  -- Neovim's reader of JSON drops nulls; `cleared` names them.
  for _, name in ipairs(op.cleared or {}) do
    held.block[name] = nil
  end
  if put.body then
    held.pieces, held.size = { put.body }, #put.body
  end
  self:_changed(put.id, put.body and "whole" or "head")
end

function Transcript:_append(op)
  local held = self.held[op.id]
  table.insert(held.pieces, op.text)
  held.size = held.size + #op.text
  self:_changed(op.id, { op.text })
end

function Transcript:_drop(op)
  local held = self.held[op.id]
  if not held then
    return
  end
  table.remove(self.ids, self:_index(held.block))
  self.held[op.id] = nil
  if self.changes.blocks[op.id] then
    self.changes.blocks[op.id] = nil
    for index, id in ipairs(self.changes.order) do
      if id == op.id then
        table.remove(self.changes.order, index)
        break
      end
    end
  end
  table.insert(self.changes.dropped, op.id)
end

--- Whether every op fits: a part of a block to one that is held, an append to a body of exactly that length, both as it
--- will be by then.
function Transcript:_fits(ops)
  local sizes = {}
  for _, op in ipairs(ops) do
    if op.op == "put" then
      local held = self.held[op.block.id]
      local skipped = not held and self.before and stands_before(op.block.order, self.before)
      if skipped then
        sizes[op.block.id] = "skipped"
      elseif op.block.body then
        sizes[op.block.id] = #op.block.body
      elseif sizes[op.block.id] == -1 or not (held or sizes[op.block.id]) then
        return false
      end
    elseif op.op == "drop" then
      sizes[op.id] = -1
    else
      local size = sizes[op.id] or (self.held[op.id] and self.held[op.id].size)
      if size ~= "skipped" then
        if size ~= op.offset then
          return false
        end
        sizes[op.id] = size + #op.text
      end
    end
  end
  return true
end

function Transcript:_apply(ops)
  for _, op in ipairs(ops) do
    if op.op == "put" then
      self:_put(op)
    elseif op.op == "drop" then
      self:_drop(op)
    elseif self.held[op.id] then
      self:_append(op)
    end
  end
end

-- What comes from the server ----------------------------------------------------------------------------------------

--- Take the answer of an attach.
---@param result table
function Transcript:attached(result)
  if result.reset then
    self.held, self.ids = {}, {}
    self.changes = no_changes()
    self.changes.reset = true
    self.before = nil
  end
  self:_apply(result.ops)
  if result.reset then
    self.before = result.before
  end
  self.epoch, self.rev = result.epoch, result.rev
  self.agent = result.state
  self.changes.state = true
end

--- Take a frame: "ok", "old" for one that is known, or "gap" for one that cannot follow what is held, of which nothing
--- is applied; then attach again.
---@param frame table
---@return "ok"|"old"|"gap"
function Transcript:frame(frame)
  if frame.epoch ~= self.epoch then
    return "gap"
  elseif frame.rev <= self.rev then
    return "old"
  elseif not self:_fits(frame.ops) then
    return "gap"
  end
  self:_apply(frame.ops)
  self.rev = frame.rev
  return "ok"
end

--- Take a state; of two the one with the higher `rev` counts.
---@param state agentls.AgentState
---@return "ok"|"old"|"gap"
function Transcript:state(state)
  if state.epoch ~= self.epoch then
    return "gap"
  elseif self.agent and state.rev <= self.agent.rev then
    return "old"
  end
  self.agent = state
  self.rev = math.max(self.rev, state.rev)
  self.changes.state = true
  return "ok"
end

--- Take a page of older blocks; those that are held are newer than it.
---@param result table
function Transcript:page(result)
  self.before = nil
  local known = {}
  local ops = {}
  for _, op in ipairs(result.ops) do
    local id = op.id or op.block.id
    if known[id] == nil then
      known[id] = self.held[id] ~= nil
    end
    if not known[id] then
      table.insert(ops, op)
    end
  end
  self:_apply(ops)
  self.before = result.before
end

--- What has changed since this was called last.
---@return agentls.Changes
function Transcript:take()
  local changes = self.changes
  self.changes = no_changes()
  return changes
end

return M
