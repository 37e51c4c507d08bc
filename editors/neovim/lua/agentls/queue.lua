--- The messages that wait, as a list in which they are edited, moved, promoted, removed and let go.

local client = require("agentls.client")
local render = require("agentls.render")
local tell = require("agentls.tell")
local windows = require("agentls.windows")

local M = {}

-- Milliseconds that writing a message waits for the server.
local ANSWERED_WITHIN = 2000

local HELP = "e edit · dd remove · K up · J down · p promote · R resume · q close"

---@type table<integer, fun()> What draws each open list again.
local lists = {}

local function change(method, params)
  client.request("agent/inbox/" .. method, params, function(problem, result)
    if problem then
      tell.complain(problem.message)
    elseif result.outcome == "gone" then
      tell.complain("the message waits no more: the agent has it, or somebody removed it")
    end
  end)
end

--- Edit a message in a buffer of its own; writing it changes the message.
local function edit(session, waiting)
  if waiting.more and waiting.more > 0 then
    tell.complain(("the message is too long to be edited here: %d bytes of it are not shown"):format(waiting.more))
    return
  end
  local buffer = windows.below(" message %m", 8, { buftype = "acwrite", filetype = "markdown" })
  vim.api.nvim_buf_set_name(buffer, ("agentls://%s/message/%s"):format(session.id, waiting.messageId))
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, vim.split(waiting.text, "\n", { plain = true }))
  vim.bo[buffer].modified = false
  vim.api.nvim_create_autocmd("BufWriteCmd", {
    buffer = buffer,
    callback = function()
      local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, true), "\n")
      local params = { agentId = session.id, messageId = waiting.messageId, content = text }
      local answered = false
      client.request("agent/inbox/edit", params, function(problem, result)
        answered = true
        if problem then
          tell.complain(problem.message .. "; the text is still in this buffer")
        elseif result.outcome == "gone" then
          tell.complain("the message waits no more; its new text is still in this buffer")
        elseif vim.api.nvim_buf_is_valid(buffer) then
          vim.bo[buffer].modified = false
        end
      end)
      -- `:wq` closes what is not modified when this returns.
      vim.wait(ANSWERED_WITHIN, function()
        return answered
      end, 5)
    end,
  })
end

--- Open the list of an agent's waiting messages.
---@param session agentls.Session
function M.open(session)
  local buffer = windows.below(" queue ", 10, { filetype = "agentls-queue" })
  vim.wo[0][0].winbar = HELP
  vim.wo[0][0].cursorline = true
  vim.wo[0][0].wrap = false
  local shown = {}

  local function draw()
    local state = session:state()
    shown = state and state.inbox or {}
    local lines = {}
    for _, waiting in ipairs(shown) do
      local held = waiting.held and " (held)" or ""
      table.insert(lines, ("%-8s%s %s"):format(waiting.lane, held, render.one_line(waiting.text)))
    end
    if #lines == 0 then
      lines = { "nothing waits" }
    end
    vim.bo[buffer].modifiable = true
    vim.api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
    vim.bo[buffer].modifiable = false
  end

  local function on(key, what)
    vim.keymap.set("n", key, function()
      local at = vim.api.nvim_win_get_cursor(0)[1]
      if shown[at] then
        what(shown[at], at)
      end
    end, { buffer = buffer, nowait = true })
  end

  on("e", function(waiting)
    edit(session, waiting)
  end)
  on("dd", function(waiting)
    change("remove", { agentId = session.id, messageId = waiting.messageId })
  end)
  on("p", function(waiting)
    change("promote", { agentId = session.id, messageId = waiting.messageId })
  end)
  on("K", function(waiting, at)
    if shown[at - 1] and shown[at - 1].lane == waiting.lane then
      change("move", { agentId = session.id, messageId = waiting.messageId, before = shown[at - 1].messageId })
      vim.api.nvim_win_set_cursor(0, { at - 1, 0 })
    end
  end)
  on("J", function(waiting, at)
    if shown[at + 1] and shown[at + 1].lane == waiting.lane then
      -- Before the one after next; without one it goes to the end.
      local before = shown[at + 2] and shown[at + 2].lane == waiting.lane and shown[at + 2].messageId or nil
      change("move", { agentId = session.id, messageId = waiting.messageId, before = before })
      vim.api.nvim_win_set_cursor(0, { at + 1, 0 })
    end
  end)
  vim.keymap.set("n", "R", function()
    change("resume", { agentId = session.id })
  end, { buffer = buffer, nowait = true })
  vim.keymap.set("n", "q", "<Cmd>close<CR>", { buffer = buffer, nowait = true })

  lists[buffer] = draw
  vim.api.nvim_create_autocmd("BufWipeout", {
    buffer = buffer,
    callback = function()
      lists[buffer] = nil
    end,
  })
  draw()
end

client.on("agent/state", function()
  -- After the session has taken the state, whichever listener comes first.
  vim.schedule(function()
    for _, draw in pairs(lists) do
      draw()
    end
  end)
end)

return M
