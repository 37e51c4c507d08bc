--- agentls in Neovim: what the commands do, as functions.

local client = require("agentls.client")
local config = require("agentls.config")
local editor = require("agentls.editor")
local queue = require("agentls.queue")
local render = require("agentls.render")
local session = require("agentls.session")
local windows = require("agentls.windows")

local M = {}

---@type string? The agent that commands are for.
local current

local function say(text)
  vim.notify("agentls: " .. text, vim.log.levels.INFO)
end

local function complain(text)
  vim.notify("agentls: " .. text, vim.log.levels.ERROR)
end

--- Settings, all of them optional: |agentls-settings|.
---@param settings table?
function M.setup(settings)
  config.set(settings)
end

-- Which agent ------------------------------------------------------------------------------------------------------

local function map(buffer, modes, key, what, desc)
  if key then
    vim.keymap.set(modes, key, what, { buffer = buffer, desc = "agentls: " .. desc })
  end
end

local function bind(drawn)
  local transcript = drawn.view.buffer
  local prompt = windows.prompt(transcript)
  local keys = config.current.keys
  map(prompt, "n", keys.send, M.send, "send the prompt")
  map(prompt, "i", keys.send_insert, M.send, "send the prompt")
  map(prompt, { "n", "i" }, keys.steer, M.steer, "steer with the prompt")
  map(prompt, { "n", "i" }, keys.cancel, M.cancel, "stop the turn")
  map(transcript, "n", keys.cancel, M.cancel, "stop the turn")
  map(transcript, "n", "<Tab>", "za", "open or close the fold")
  map(transcript, "n", "gp", function()
    drawn:older()
  end, "read older blocks")
end

local function become(id, shown)
  local opened
  opened = session.open(id, function(problem)
    if problem then
      complain(problem)
      return
    end
    current = id
    bind(opened)
    opened:draw_now()
    shown(opened)
  end)
end

local function create(shown)
  client.request("agent/create", {
    workspaceUri = vim.uri_from_fname(client.root()),
    model = config.current.model,
    mode = config.current.mode,
  }, function(problem, agent)
    if agent then
      become(agent.agentId, shown)
    else
      complain(problem.message)
    end
  end)
end

--- The agent of another editor that is live on this server is joined; else a new one is made.
local function join_or_create(shown)
  client.request("agent/list", { workspaceUri = vim.uri_from_fname(client.root()), limit = 20 }, function(_, result)
    for _, row in ipairs(result and result.agents or {}) do
      if row.status ~= "stored" and not row.damaged then
        become(row.id, shown)
        return
      end
    end
    create(shown)
  end)
end

local waiting = {}

client.on("connected", function()
  local calls = waiting
  waiting = {}
  for _, call in ipairs(calls) do
    call()
  end
end)

--- Call `work` with the agent that commands are for, once there is one.
---@param work fun(session: agentls.Session)
local function with_agent(work)
  editor.start()
  client.start()
  local drawn = current and session.get(current)
  if drawn then
    work(drawn)
  elseif client.client() then
    join_or_create(work)
  else
    if client.problem() then
      say(client.problem())
    end
    table.insert(waiting, function()
      with_agent(work)
    end)
  end
end

--- Open the transcript and the prompt, of a new agent where `fresh`.
---@param options { fresh: boolean? }?
function M.open(options)
  if options and options.fresh then
    current = nil
    editor.start()
    client.start()
    if not client.client() then
      with_agent(function(drawn)
        windows.open(drawn.view.buffer)
      end)
      return
    end
    create(function(drawn)
      windows.open(drawn.view.buffer)
    end)
    return
  end
  with_agent(function(drawn)
    windows.open(drawn.view.buffer)
  end)
end

--- Close the windows of the agent; it goes on.
function M.close()
  local drawn = current and session.get(current)
  if drawn then
    windows.close(drawn.view.buffer)
  end
end

--- Choose one of the agents of this workspace and open it.
function M.sessions()
  with_agent(function()
    client.request("agent/list", { workspaceUri = vim.uri_from_fname(client.root()) }, function(problem, result)
      if not result then
        complain(problem.message)
        return
      end
      vim.ui.select(result.agents, {
        prompt = "Agent",
        format_item = function(row)
          local when = os.date("%Y-%m-%d %H:%M", math.floor(row.updatedAt / 1000))
          local text = row.title or row.summary or "nothing said yet"
          return ("%s  %-9s %s%s"):format(when, row.status, text, row.damaged and " (damaged)" or "")
        end,
      }, function(row)
        if row then
          become(row.id, function(drawn)
            windows.open(drawn.view.buffer)
          end)
        end
      end)
    end)
  end)
end

-- Saying something --------------------------------------------------------------------------------------------------

---@class agentls.Selection
---@field first integer From 1.
---@field last integer
---@field buffer integer

---@param selection agentls.Selection
local function selected(selection)
  local lines = vim.api.nvim_buf_get_lines(selection.buffer, selection.first - 1, selection.last, true)
  local name = vim.api.nvim_buf_get_name(selection.buffer)
  local root = client.root()
  local short = root and vim.fs.relpath(root, name) or vim.fn.fnamemodify(name, ":~:.")
  if short == "" then
    short = "a buffer without a name"
  end
  local place = selection.first == selection.last and ("%s:%d"):format(short, selection.first)
    or ("%s:%d-%d"):format(short, selection.first, selection.last)
  return table.concat(lines, "\n"), place, vim.bo[selection.buffer].filetype
end

--- A fence that the text cannot close.
local function fenced(text, language)
  local longest = 2
  for run in text:gmatch("`+") do
    longest = math.max(longest, #run)
  end
  local fence = ("`"):rep(longest + 1)
  return ("%s%s\n%s\n%s"):format(fence, language, text, fence)
end

--- What the arguments say, with the selection after it; without arguments, what the prompt says.
---@return string text, boolean from_prompt
local function words(drawn, text, selection)
  local from_prompt = not text or text == ""
  local said = from_prompt and windows.take_prompt(drawn.view.buffer) or text
  if selection then
    local body, place, language = selected(selection)
    said = vim.trim(("%s\n\n%s\n%s"):format(said, place, fenced(body, language)))
  end
  return said, from_prompt
end

local function deliver(drawn, method, params, from_prompt)
  params.agentId, params.messageId = drawn.id, client.new_id()
  client.send(method, params, function(problem, result)
    local refused = result and result.outcome == "refused"
    if problem or refused then
      if from_prompt then
        windows.give_back(drawn.view.buffer, params.content)
      end
      local where = from_prompt and "; the text is back in the prompt" or ""
      complain((problem and problem.message or ("refused: " .. result.reason)) .. where)
    elseif result.outcome == "queued" then
      say(("queued at place %d; :AgentQueue shows what waits"):format((result.position or 0) + 1))
    elseif method == "agent/steer" and result.outcome == "started" then
      say("nothing was running, so that it started a turn")
    end
  end)
  drawn:refresh()
end

---@param method string
---@param text string?
---@param selection agentls.Selection?
local function speak(method, text, selection)
  with_agent(function(drawn)
    local said, from_prompt = words(drawn, text, selection)
    if said == "" then
      windows.open(drawn.view.buffer)
      return
    end
    deliver(drawn, method, { content = said }, from_prompt)
  end)
end

--- Send a message that gets a turn of its own: the text, or what the prompt says; with the selection after it.
---@param text string?
---@param selection agentls.Selection?
function M.send(text, selection)
  speak("agent/followup", text, selection)
end

--- Send a message into the running turn.
---@param text string?
---@param selection agentls.Selection?
function M.steer(text, selection)
  speak("agent/steer", text, selection)
end

--- Put the selection, or the text, before the model, without running anything.
---@param text string?
---@param selection agentls.Selection?
function M.inject(text, selection)
  with_agent(function(drawn)
    local said, from_prompt, summary
    if selection then
      local body, place, language = selected(selection)
      summary = "selection of " .. place
      said = vim.trim(("%s\n\n%s\n%s"):format(text or "", place, fenced(body, language)))
    else
      said, from_prompt = words(drawn, text)
      summary = vim.split(said, "\n", { plain = true })[1]
    end
    if said == "" then
      complain("there is nothing to inject: give a range, a text, or fill the prompt")
      return
    end
    if vim.fn.strchars(summary) > 120 then
      summary = vim.fn.strcharpart(summary, 0, 119) .. "…"
    end
    deliver(drawn, "agent/inject", { content = said, context = { form = "notice", summary = summary } }, from_prompt)
  end)
end

-- Deciding ----------------------------------------------------------------------------------------------------------

--- Stop the running turn; what waits is held.
function M.cancel()
  with_agent(function(drawn)
    client.request("agent/cancel", { agentId = drawn.id, keepInbox = true }, function(problem, result)
      if problem then
        complain(problem.message)
      elseif result.outcome == "idle" then
        say("nothing is running")
      elseif #result.inbox > 0 then
        say(("stopped; %d waiting, :AgentQueue resumes them"):format(#result.inbox))
      end
    end)
  end)
end

local DECISIONS = { "allow", "deny", "deny-and-stop" }

--- Answer the request under the cursor, or else the first that is open.
---@param decision "allow"|"deny"|"deny-and-stop"
---@param note string?
function M.answer(decision, note)
  if not vim.list_contains(DECISIONS, decision) then
    complain(('"%s" is no decision; give one of %s'):format(decision, table.concat(DECISIONS, ", ")))
    return
  end
  with_agent(function(drawn)
    local state = drawn:state()
    local request = state and state.requests[1]
    if vim.api.nvim_get_current_buf() == drawn.view.buffer then
      local under = drawn.view:at(vim.api.nvim_win_get_cursor(0)[1] - 1)
      for _, one in ipairs(state and state.requests or {}) do
        request = one.blockId == under and one or request
      end
    end
    if not request then
      say("nothing waits for an answer")
      return
    end
    client.request("agent/answer", {
      agentId = request.agentId,
      requestId = request.requestId,
      shown = request.shown,
      answer = { decision = decision, note = note ~= "" and note or nil },
    }, function(problem, result)
      if problem then
        complain(problem.message)
      elseif result.outcome == "already-resolved" then
        say(result.by and ("%s has answered already"):format(result.by) or "it is closed already")
      elseif result.outcome == "changed" then
        complain("what is asked has changed; read it again and decide anew")
      end
    end)
  end)
end

--- Try the last turn again.
function M.retry()
  with_agent(function(drawn)
    local last = drawn:state() and drawn:state().lastTurn
    if not last or last == vim.NIL then
      say("there is no turn to try again")
      return
    end
    local params = { agentId = drawn.id, messageId = client.new_id(), turn = last.number }
    client.send("agent/retry", params, function(problem, result)
      if problem or result.outcome == "refused" then
        complain(problem and problem.message or ("refused: " .. result.reason))
      end
    end)
  end)
end

--- Show what waits, to edit, move, promote, remove and resume it.
function M.queue()
  with_agent(queue.open)
end

--- Show the whole body of the block under the cursor, of which only a part is drawn.
function M.block()
  with_agent(function(drawn)
    local id = drawn.view:at(vim.api.nvim_win_get_cursor(0)[1] - 1)
    if vim.api.nvim_get_current_buf() ~= drawn.view.buffer or not id then
      complain("put the cursor on a block of the transcript")
      return
    end
    local parts = {}
    local function read(from)
      client.request("agent/block", { agentId = drawn.id, id = id, from = from }, function(problem, part)
        if problem then
          complain(problem.message)
          return
        end
        table.insert(parts, part.text)
        if part.to < part.size and part.to > from then
          read(part.to)
        else
          windows.scratch(render.safe(table.concat(parts)))
        end
      end)
    end
    read(0)
  end)
end

-- Telling others ----------------------------------------------------------------------------------------------------

client.on("agent/attention", function(params)
  local pattern = params.kind == "needs-you" and "AgentNeedsYou" or "AgentTurnDone"
  vim.api.nvim_exec_autocmds("User", { pattern = pattern, data = params, modeline = false })
end)

--- The state of the agent that commands are for, as the server told it last; for a status line.
---@return agentls.AgentState?
function M.state()
  local drawn = current and session.get(current)
  return drawn and drawn:state()
end

return M
