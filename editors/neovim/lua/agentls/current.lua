--- The agent that commands are for: found or made when the first of them needs it.

local client = require("agentls.client")
local config = require("agentls.config")
local editor = require("agentls.editor")
local session = require("agentls.session")
local tell = require("agentls.tell")

local M = {}

---@type string?
local current

---@type fun()[] What waits for a connection.
local waiting = {}

---@type (fun(session: agentls.Session))[]? What waits for the agent that is being found or made.
local opening

--- The agent that commands are for, where there is one.
---@return agentls.Session?
function M.get()
  return current and session.get(current)
end

-- Told once by itself: the tries that follow, each later than the one before, are as likely to fail.
local told = false

---@param work fun()
local function with_connection(work)
  editor.start()
  client.start()
  if client.client() then
    work()
    return
  end
  table.insert(waiting, work)
  if told and client.problem() then
    tell.say(client.problem())
  end
end

client.on("connected", function()
  local works = waiting
  waiting = {}
  for _, work in ipairs(works) do
    work()
  end
end)

---@param problem string?
local function opened(problem)
  local works = opening or {}
  opening = nil
  if problem then
    tell.complain(problem)
    return
  end
  for _, work in ipairs(works) do
    work(assert(M.get()))
  end
end

---@param id string
local function become(id)
  session.open(id, function(problem)
    if not problem then
      current = id
    end
    opened(problem)
  end)
end

local function create()
  local wanted = {
    workspaceUri = vim.uri_from_fname(client.root()),
    model = config.current.model,
    mode = config.current.mode,
  }
  client.request("agent/create", wanted, function(problem, agent)
    if problem then
      opened(problem.message)
    else
      become(agent.agentId)
    end
  end)
end

--- The agent of another editor that is live on this server is joined; else a new one is made.
local function join_or_create()
  client.request("agent/list", { workspaceUri = vim.uri_from_fname(client.root()) }, function(problem, result)
    if problem then
      opened(problem.message)
      return
    end
    for _, row in ipairs(result.agents) do
      if row.status ~= "stored" then
        become(row.id)
        return
      end
    end
    create()
  end)
end

-- Commands that come while an agent is being found are all for that one.
---@param find fun()
---@param work fun(session: agentls.Session)
local function open(find, work)
  with_connection(function()
    if opening then
      table.insert(opening, work)
    else
      opening = { work }
      find()
    end
  end)
end

--- Call `work` with the agent, once there is one.
---@param work fun(session: agentls.Session)
function M.with(work)
  local drawn = M.get()
  if drawn and not opening then
    work(drawn)
  else
    open(function()
      if M.get() then
        opened()
      else
        join_or_create()
      end
    end, work)
  end
end

--- Make a new agent the one that commands are for.
---@param work fun(session: agentls.Session)
function M.fresh(work)
  open(create, work)
end

--- Make another agent the one that commands are for.
---@param id string
---@param work fun(session: agentls.Session)
function M.switch(id, work)
  open(function()
    become(id)
  end, work)
end

client.on("lost", function(lost)
  -- No answer comes any more, so what waits for an agent waits for a connection again.
  local works = opening or {}
  opening = nil
  for _, work in ipairs(works) do
    table.insert(waiting, function()
      M.with(work)
    end)
  end
  if #waiting > 0 and not told then
    told = true
    tell.complain(lost.reason .. "; :checkhealth agentls tells more")
  end
end)

return M
