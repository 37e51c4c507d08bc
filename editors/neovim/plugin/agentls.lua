-- The commands; nothing else is loaded before one of them is used.
if vim.g.loaded_agentls then
  return
end
vim.g.loaded_agentls = true

local highlights = {
  AgentlsUser = "Title",
  AgentlsAssistant = "Function",
  AgentlsTool = "Special",
  AgentlsDim = "Comment",
  AgentlsAsks = "DiagnosticWarn",
  AgentlsError = "DiagnosticError",
}
for name, link in pairs(highlights) do
  vim.api.nvim_set_hl(0, name, { link = link, default = true })
end

local function agent()
  if vim.fn.has("nvim-0.11") == 0 then
    error("agentls needs Neovim 0.11 or newer", 0)
  end
  return require("agentls")
end

local function command(name, run, options)
  vim.api.nvim_create_user_command(name, run, options)
end

local function spoken(verb)
  return function(given)
    local selection
    if given.range > 0 then
      selection = { buffer = vim.api.nvim_get_current_buf(), first = given.line1, last = given.line2 }
    end
    agent()[verb](given.args, selection)
  end
end

command("Agent", function(given)
  agent().open({ fresh = given.bang })
end, { bang = true, desc = "Open the agent; with !, a new one" })
command("AgentSend", spoken("send"), { nargs = "*", range = true, desc = "Send a message, or the prompt" })
command("AgentSteer", spoken("steer"), { nargs = "*", range = true, desc = "Send into the running turn" })
command("AgentInject", spoken("inject"), { nargs = "*", range = true, desc = "Put the range before the model" })
command("AgentAnswer", function(given)
  agent().answer(given.fargs[1], table.concat(given.fargs, " ", 2))
end, {
  nargs = "+",
  desc = "Answer what the agent asks",
  complete = function(lead)
    return vim.tbl_filter(function(decision)
      return vim.startswith(decision, lead)
    end, { "allow", "deny", "deny-and-stop" })
  end,
})

local plain = {
  Block = "Show the whole block under the cursor",
  Cancel = "Stop the turn; what waits is held",
  Close = "Close the windows of the agent, which goes on",
  Older = "Read older blocks of the transcript",
  Queue = "Show what waits",
  Retry = "Try the last turn again",
  Sessions = "Choose another agent",
}
for name, what in pairs(plain) do
  command("Agent" .. name, function()
    agent()[name:lower()]()
  end, { desc = what })
end

local function plug(name, modes, what)
  vim.keymap.set(modes, ("<Plug>(agentls-%s)"):format(name), what, { desc = "agentls: " .. name })
end
plug("open", "n", "<Cmd>Agent<CR>")
plug("send", "n", "<Cmd>AgentSend<CR>")
plug("steer", "n", "<Cmd>AgentSteer<CR>")
plug("cancel", "n", "<Cmd>AgentCancel<CR>")
plug("queue", "n", "<Cmd>AgentQueue<CR>")
plug("sessions", "n", "<Cmd>AgentSessions<CR>")
plug("allow", "n", "<Cmd>AgentAnswer allow<CR>")
plug("deny", "n", "<Cmd>AgentAnswer deny<CR>")
plug("send", "x", ":AgentSend<CR>")
plug("steer", "x", ":AgentSteer<CR>")
plug("inject", "x", ":AgentInject<CR>")
