--- One agent as this editor draws it: attached, kept up to date, and attached again where something is missing.

local client = require("agentls.client")
local render = require("agentls.render")
local tell = require("agentls.tell")
local transcript = require("agentls.transcript")
local view = require("agentls.view")
local windows = require("agentls.windows")

local M = {}

-- Milliseconds of one picture of a screen: what comes within it is drawn together.
local DRAW_EVERY = 16

---@class agentls.Session
---@field id string
---@field transcript agentls.Transcript
---@field view agentls.View
---@field attached boolean
---@field awaiting boolean Whether an answer is awaited that changes the blocks, of an attach or a page.
---@field kept { method: string, params: table }[] Frames and states that came meanwhile: they count after it.
---@field done (fun(problem: string?))[] What waits to be attached.
---@field asked agentls.OpenRequest[] What waits for the person, as far as it is drawn.
---@field drawn integer When it was drawn last, in milliseconds of the loop.
---@field drawing boolean Whether something is still to be drawn.
local Session = {}
Session.__index = Session

---@type table<string, agentls.Session>
local sessions = {}

--- The session of an agent that is drawn here.
---@param id string
---@return agentls.Session?
function M.get(id)
  return sessions[id]
end

--- The session whose transcript is in a buffer.
---@param buffer integer
---@return agentls.Session?
function M.of(buffer)
  for _, session in pairs(sessions) do
    if session.view.buffer == buffer then
      return session
    end
  end
end

--- Draw an agent, from now on. `done` is called with a problem, or nil, once it is drawn.
---@param id string
---@param done fun(problem: string?)
function M.open(id, done)
  local session = sessions[id]
  if not session then
    local blocks = transcript.new()
    session = setmetatable({
      id = id,
      transcript = blocks,
      view = view.new("agentls://" .. id .. "/transcript", blocks),
      attached = false,
      awaiting = false,
      kept = {},
      done = {},
      asked = {},
      drawn = 0,
      drawing = false,
    }, Session)
    sessions[id] = session
    windows.bind(session.view.buffer)
  end
  if session.attached and not session.awaiting then
    done()
  else
    session:attach(done)
  end
end

--- The newest state that the server told.
---@return agentls.AgentState?
function Session:state()
  return self.transcript.agent
end

-- Catching up -------------------------------------------------------------------------------------------------------

---@param method string
---@param params table
---@param take fun(result: table)
function Session:_await(method, params, take)
  self.awaiting = true
  client.request(method, params, function(problem, result)
    self.awaiting = false
    if result then
      take(result)
    end
    local kept, done = self.kept, self.done
    self.kept, self.done = {}, {}
    for _, one in ipairs(kept) do
      self:receive(one.method, one.params)
    end
    self:draw_now()
    if problem and #done == 0 then
      tell.complain(problem.message)
    end
    for _, call in ipairs(done) do
      call(problem and problem.message)
    end
  end)
end

--- Catch up with the server from what is held.
---@param done fun(problem: string?)?
function Session:attach(done)
  table.insert(self.done, done)
  if not self.awaiting then
    local held = self.transcript
    self:_await("agent/attach", { agentId = self.id, epoch = held.epoch, since = held.rev }, function(result)
      held:attached(result)
      self.attached = true
    end)
  end
end

--- Read an older page of blocks, where there is one.
function Session:older()
  local before = self.transcript.before
  if before and not self.awaiting then
    self:_await("agent/page", { agentId = self.id, before = before }, function(result)
      self.transcript:page(result)
    end)
  end
end

--- Take a frame or a state of this agent.
---@param method string
---@param params table
function Session:receive(method, params)
  if self.awaiting then
    table.insert(self.kept, { method = method, params = params })
    return
  elseif not self.attached then
    return
  end
  local held = self.transcript
  local said = method == "agent/state" and held:state(params) or held:frame(params)
  if said == "gap" then
    self:attach()
  else
    self:_draw()
  end
end

-- Drawing -----------------------------------------------------------------------------------------------------------

function Session:_draw()
  if self.drawing then
    return
  end
  local wait = self.drawn + DRAW_EVERY - vim.uv.now()
  if wait <= 0 then
    self:draw_now()
    return
  end
  self.drawing = true
  vim.defer_fn(function()
    self:draw_now()
  end, wait)
end

--- Draw what has come since the last time.
function Session:draw_now()
  self.drawing = false
  local changes = self.transcript:take()
  self.view:draw(changes)
  if changes.state or changes.reset then
    self:refresh()
  end
  self.drawn = vim.uv.now()
end

--- Draw what is not a block: the line above the transcript, and what waits for an answer.
function Session:refresh()
  local state = self:state()
  if state then
    self.asked = state.requests
    windows.status(self.view.buffer, render.status(state, client.unanswered(), client.problem()))
    windows.ask(self.view, state.requests)
  end
end

-- What comes of the connection --------------------------------------------------------------------------------------

for _, method in ipairs({ "agent/blocks", "agent/state" }) do
  client.on(method, function(params)
    local session = sessions[params.agentId]
    if session then
      session:receive(method, params)
    end
  end)
end

client.on("lost", function()
  for _, session in pairs(sessions) do
    -- Whoever waits to be attached waits on: it is done again with the next connection.
    session.awaiting, session.attached, session.kept = false, false, {}
    session:refresh()
  end
end)

client.on("connected", function()
  for _, session in pairs(sessions) do
    session:attach(function(problem)
      if problem then
        tell.complain(problem)
      end
      session:refresh()
    end)
  end
end)

return M
