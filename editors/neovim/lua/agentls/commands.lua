--- What the commands do, as functions.

local client = require("agentls.client")
local current = require("agentls.current")
local queue = require("agentls.queue")
local render = require("agentls.render")
local session = require("agentls.session")
local tell = require("agentls.tell")
local windows = require("agentls.windows")

---@class agentls.Commands
local M = {}

--- The state of the agent that commands are for, as the server told it last; for a status line.
---@return agentls.AgentState?
function M.state()
  local drawn = current.get()
  return drawn and drawn:state()
end

-- Seeing ------------------------------------------------------------------------------------------------------------

---@param drawn agentls.Session
local function show(drawn)
  windows.open(drawn.view.buffer)
end

--- Open the transcript and the prompt, of a new agent where `fresh`.
---@param options { fresh: boolean? }?
function M.open(options)
  if options and options.fresh then
    current.fresh(show)
  else
    current.with(show)
  end
end

--- Close the windows of the agent; it goes on.
function M.close()
  local drawn = current.get()
  if drawn then
    windows.close(drawn.view.buffer)
  end
end

--- Read older blocks of the transcript.
function M.older()
  current.with(function(drawn)
    drawn:older()
  end)
end

---@param row agentls.Listed
local function listed(row)
  local when = os.date("%Y-%m-%d %H:%M", math.floor(row.updatedAt / 1000))
  local text = render.one_line(row.title or row.summary or "nothing said yet")
  return ("%s  %-9s %s%s"):format(when, row.status, text, row.damaged and " (damaged)" or "")
end

--- Choose one of the agents of this workspace and open it.
function M.sessions()
  current.with(function()
    client.request("agent/list", { workspaceUri = vim.uri_from_fname(client.root()) }, function(problem, result)
      if problem then
        tell.complain(problem.message)
        return
      end
      vim.ui.select(result.agents, { prompt = "Agent", format_item = listed }, function(row)
        if row then
          current.switch(row.id, show)
        end
      end)
    end)
  end)
end

--- Show what waits, to edit, move, promote, remove and resume it.
function M.queue()
  current.with(queue.open)
end

--- Show the whole body of the block under the cursor, of which only a part is drawn.
function M.block()
  local drawn = session.of(vim.api.nvim_get_current_buf())
  local id = drawn and drawn.view:at(vim.api.nvim_win_get_cursor(0)[1] - 1)
  if not drawn or not id then
    tell.complain("put the cursor on a block of the transcript")
    return
  end
  local parts = {}
  local function read(from)
    client.request("agent/block", { agentId = drawn.id, id = id, from = from }, function(problem, part)
      if problem then
        tell.complain(problem.message)
        return
      end
      table.insert(parts, part.text)
      if part.to < part.size and part.to > from then
        read(part.to)
      else
        windows.show(render.safe(table.concat(parts)))
      end
    end)
  end
  read(0)
end

-- Saying something --------------------------------------------------------------------------------------------------

---@class agentls.Selection
---@field first integer From 1.
---@field last integer
---@field buffer integer

--- Where a selection is, in one line.
---@param selection agentls.Selection
local function place_of(selection)
  local name = vim.api.nvim_buf_get_name(selection.buffer)
  local root = client.root()
  local short = root and vim.fs.relpath(root, name) or vim.fn.fnamemodify(name, ":~:.")
  if short == "" then
    short = "a buffer without a name"
  end
  if selection.first == selection.last then
    return ("%s:%d"):format(short, selection.first)
  end
  return ("%s:%d-%d"):format(short, selection.first, selection.last)
end

--- A text with the selection after it, in a fence that the selection cannot close.
---@param text string
---@param selection agentls.Selection
local function joined(text, selection)
  local lines = vim.api.nvim_buf_get_lines(selection.buffer, selection.first - 1, selection.last, true)
  local body = table.concat(lines, "\n")
  local longest = 2
  for run in body:gmatch("`+") do
    longest = math.max(longest, #run)
  end
  local fence = ("`"):rep(longest + 1)
  local language = vim.bo[selection.buffer].filetype
  return vim.trim(("%s\n\n%s\n%s%s\n%s\n%s"):format(text, place_of(selection), fence, language, body, fence))
end

--- Send, and put the text into the prompt where the server does not take it.
---@param drawn agentls.Session
---@param method string
---@param params table
local function deliver(drawn, method, params)
  params.agentId, params.messageId = drawn.id, client.new_id()
  client.send(method, params, function(problem, result)
    if problem or result.outcome == "refused" then
      windows.give_back(drawn.view.buffer, params.content)
      local why = problem and problem.message or ("refused: " .. result.reason)
      tell.complain(why .. "; the text is in the prompt")
    elseif result.outcome == "queued" then
      tell.say(("queued at place %d; :AgentQueue shows what waits"):format((result.position or 0) + 1))
    elseif method == "agent/steer" and result.outcome == "started" then
      tell.say("nothing was running, so that it started a turn")
    end
    drawn:refresh()
  end)
  drawn:refresh()
end

--- Send the text, or else what the prompt says, with the selection after it.
---@param method string
---@param text string?
---@param selection agentls.Selection?
local function speak(method, text, selection)
  current.with(function(drawn)
    local said = text ~= "" and text or windows.take_prompt(drawn.view.buffer)
    if selection then
      said = joined(said, selection)
    end
    if said == "" then
      windows.open(drawn.view.buffer)
    else
      deliver(drawn, method, { content = said })
    end
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

--- Put the selection with the text before it, or without one the text or the prompt, before the model; nothing runs.
---@param text string?
---@param selection agentls.Selection?
function M.inject(text, selection)
  current.with(function(drawn)
    local said, summary
    if selection then
      said, summary = joined(text or "", selection), "selection of " .. place_of(selection)
    else
      said = text ~= "" and text or windows.take_prompt(drawn.view.buffer)
      summary = vim.split(said, "\n", { plain = true })[1]
    end
    if said == "" then
      tell.complain("there is nothing to inject: give a range, a text, or fill the prompt")
      return
    end
    if vim.fn.strchars(summary) > 120 then
      summary = vim.fn.strcharpart(summary, 0, 119) .. "…"
    end
    deliver(drawn, "agent/inject", { content = said, context = { form = "notice", summary = summary } })
  end)
end

--- Try the last turn again.
function M.retry()
  current.with(function(drawn)
    local last = drawn:state().lastTurn
    if not last then
      tell.say("there is no turn to try again")
      return
    end
    local params = { agentId = drawn.id, messageId = client.new_id(), turn = last.number }
    client.send("agent/retry", params, function(problem, result)
      if problem or result.outcome == "refused" then
        tell.complain(problem and problem.message or ("refused: " .. result.reason))
      end
    end)
  end)
end

-- Deciding ----------------------------------------------------------------------------------------------------------

--- Stop the running turn; what waits is held.
function M.cancel()
  current.with(function(drawn)
    client.request("agent/cancel", { agentId = drawn.id, keepInbox = true }, function(problem, result)
      if problem then
        tell.complain(problem.message)
      elseif result.outcome == "idle" then
        tell.say("nothing is running")
      elseif #result.inbox > 0 then
        tell.say(("stopped; %d waiting, :AgentQueue resumes them"):format(#result.inbox))
      end
    end)
  end)
end

--- The request under the cursor, or else the first: of those that are drawn, since nobody has seen another.
---@param drawn agentls.Session
---@return agentls.OpenRequest?
local function asked(drawn)
  if vim.api.nvim_get_current_buf() == drawn.view.buffer then
    local under = drawn.view:at(vim.api.nvim_win_get_cursor(0)[1] - 1)
    for _, request in ipairs(drawn.asked) do
      if request.blockId == under then
        return request
      end
    end
  end
  return drawn.asked[1]
end

local DECISIONS = { "allow", "deny", "deny-and-stop" }

--- Answer the request under the cursor, or else the first that is open.
---@param decision "allow"|"deny"|"deny-and-stop"
---@param note string?
function M.answer(decision, note)
  if not vim.list_contains(DECISIONS, decision) then
    tell.complain(('"%s" is no decision; give one of %s'):format(decision, table.concat(DECISIONS, ", ")))
    return
  end
  current.with(function(drawn)
    local request = asked(drawn)
    if not request then
      tell.say("nothing waits for an answer")
      return
    end
    client.request("agent/answer", {
      agentId = request.agentId,
      requestId = request.requestId,
      shown = request.shown,
      answer = { decision = decision, note = note ~= "" and note or nil },
    }, function(problem, result)
      if problem then
        tell.complain(problem.message)
      elseif result.outcome == "already-resolved" then
        tell.say(result.by and ("%s has answered already"):format(result.by) or "it is closed already")
      elseif result.outcome == "changed" then
        tell.complain("what is asked has changed; read it again and decide anew")
      end
    end)
  end)
end

-- Telling others ----------------------------------------------------------------------------------------------------

client.on("agent/attention", function(params)
  -- Whoever is told may answer at once, and only what is drawn can be answered.
  local drawn = session.get(params.agentId)
  if drawn then
    drawn:draw_now()
  end
  local pattern = params.kind == "needs-you" and "AgentNeedsYou" or "AgentTurnDone"
  vim.api.nvim_exec_autocmds("User", { pattern = pattern, data = params, modeline = false })
end)

return M
