--- One agent as this editor draws it: attached, kept up to date, and attached again where something is missing.

local client = require("agentls.client")
local render = require("agentls.render")
local transcript = require("agentls.transcript")
local view = require("agentls.view")
local windows = require("agentls.windows")

local M = {}

-- Frames that come within one picture of a screen are drawn together.
local DRAW_EVERY = 16

---@class agentls.Session
---@field id string
---@field transcript agentls.Transcript
---@field view agentls.View
---@field attaching boolean
---@field attached boolean
---@field kept table[] Frames and states that came while an answer was waited for.
---@field drawing boolean
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

--- The session of the transcript in a buffer.
---@param buffer integer
---@return agentls.Session?
function M.of(buffer)
  for _, session in pairs(sessions) do
    if session.view.buffer == buffer then
      return session
    end
  end
end

--- Draw an agent, from now on. `attached` is called with a problem, or nil.
---@param id string
---@param attached fun(problem: string?)?
---@return agentls.Session
function M.open(id, attached)
  local session = sessions[id]
  if not session then
    local blocks = transcript.new()
    session = setmetatable({
      id = id,
      transcript = blocks,
      view = view.new("agentls://" .. id .. "/transcript", blocks),
      attaching = false,
      attached = false,
      kept = {},
      drawing = false,
    }, Session)
    sessions[id] = session
  end
  session:attach(attached)
  return session
end

--- The newest state that the server told.
---@return agentls.AgentState?
function Session:state()
  return self.transcript.agent
end

--- Catch up with the server from what is held.
---@param done fun(problem: string?)?
function Session:attach(done)
  if self.attaching then
    return
  end
  self.attaching = true
  local held = self.transcript
  client.request("agent/attach", { agentId = self.id, epoch = held.epoch, since = held.rev }, function(problem, result)
    self.attaching = false
    local kept = self.kept
    self.kept = {}
    if not result then
      if done then
        done(problem and problem.message or "no answer")
      end
      return
    end
    self.attached = true
    held:attached(result)
    for _, one in ipairs(kept) do
      self:_take(one.method, one.params)
    end
    self:_draw()
    if done then
      done()
    end
  end)
end

--- Take a frame or a state of this agent.
---@param method string
---@param params table
function Session:receive(method, params)
  if self.attaching then
    table.insert(self.kept, { method = method, params = params })
  elseif self.attached then
    self:_take(method, params)
  end
end

function Session:_take(method, params)
  local held = self.transcript
  local said = method == "agent/state" and held:state(params) or held:frame(params)
  if said == "gap" then
    self:attach()
    return
  end
  self:_draw()
end

function Session:_draw()
  if self.drawing then
    return
  end
  self.drawing = true
  vim.defer_fn(function()
    self.drawing = false
    self:draw_now()
  end, DRAW_EVERY)
end

--- Draw what has come since the last time.
function Session:draw_now()
  local changes = self.transcript:take()
  self.view:draw(changes)
  if changes.state or changes.reset then
    self:refresh()
  end
end

--- Draw what is not a block: the line above the transcript, and what waits for an answer.
function Session:refresh()
  local state = self:state()
  if state then
    windows.status(self.view.buffer, render.status(state, client.unanswered(), client.problem()))
    windows.ask(self.view, state.requests)
  end
end

--- Read an older page of blocks, where there is one.
function Session:older()
  local before = self.transcript.before
  if not before or self.attaching then
    return
  end
  self.attaching = true
  client.request("agent/page", { agentId = self.id, before = before }, function(problem, result)
    self.attaching = false
    if result then
      self.transcript:page(result)
    else
      vim.notify("agentls: " .. problem.message, vim.log.levels.ERROR)
    end
    local kept = self.kept
    self.kept = {}
    for _, one in ipairs(kept) do
      self:_take(one.method, one.params)
    end
    self:_draw()
  end)
end

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
    session.attaching, session.attached, session.kept = false, false, {}
    session:refresh()
  end
end)

client.on("connected", function()
  for _, session in pairs(sessions) do
    session:attach(function(problem)
      if problem then
        vim.notify("agentls: " .. problem, vim.log.levels.ERROR)
      end
      session:refresh()
    end)
  end
end)

return M
