--- The windows of a transcript and its prompt, and what stands in them beside the text.

local config = require("agentls.config")

local M = {}

local ASKS = vim.api.nvim_create_augroup("agentls.asks", {})

---@type table<integer, integer> The prompt's buffer of each transcript's.
local prompts = {}

---@type table<integer, string>
local statuses = {}

---@type table<integer, boolean> Transcripts whose keys answer a request.
local asking = {}

---@param buffer integer
---@return integer? window In the current tab page.
function M.showing(buffer)
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if vim.api.nvim_win_get_buf(window) == buffer then
      return window
    end
  end
end

local function options(window, buffer)
  local set = {
    wrap = true,
    linebreak = true,
    smoothscroll = true,
    number = false,
    relativenumber = false,
    signcolumn = "no",
    spell = false,
    foldmethod = "manual",
    foldtext = "v:lua.require'agentls.view'.foldtext()",
    foldlevel = 0,
    foldenable = true,
    foldminlines = 0,
    fillchars = "fold: ",
    conceallevel = 0,
    statusline = " agent %=%l/%L ",
  }
  for name, value in pairs(set) do
    vim.api.nvim_set_option_value(name, value, { win = window, scope = "local" })
  end
  vim.wo[window][0].winbar = (statuses[buffer] or ""):gsub("%%", "%%%%")
end

---@param buffer integer
---@param modes string|string[]
---@param key string|false
---@param command string
local function map(buffer, modes, key, command)
  if key then
    vim.keymap.set(modes, key, ("<Cmd>%s<CR>"):format(command), { buffer = buffer, nowait = true, desc = command })
  end
end

--- The prompt that belongs to a transcript, made where there is none.
---@param transcript integer
---@return integer buffer
function M.prompt(transcript)
  local buffer = prompts[transcript]
  if not buffer or not vim.api.nvim_buf_is_valid(buffer) then
    buffer = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_buf_set_name(buffer, (vim.api.nvim_buf_get_name(transcript):gsub("transcript$", "prompt")))
    vim.bo[buffer].bufhidden = "hide"
    vim.bo[buffer].swapfile = false
    vim.bo[buffer].filetype = "markdown"
    vim.b[buffer].agentls_transcript = transcript
    prompts[transcript] = buffer
  end
  return buffer
end

--- Give a transcript and its prompt their keys.
---@param transcript integer
function M.bind(transcript)
  local prompt = M.prompt(transcript)
  local keys = config.current.keys
  map(prompt, "n", keys.send, "AgentSend")
  map(prompt, "i", keys.send_insert, "AgentSend")
  map(prompt, { "n", "i" }, keys.steer, "AgentSteer")
  -- Not in Insert mode, which many leave by this key.
  map(prompt, "n", keys.cancel, "AgentCancel")
  map(transcript, "n", keys.cancel, "AgentCancel")
  map(transcript, "n", "<Tab>", "normal! za")
  map(transcript, "n", "gp", "AgentOlder")
end

--- Go to the last line in a window, with as much of what stands before it as there is room for.
---@param window integer
function M.follow(window)
  vim.api.nvim_win_call(window, function()
    vim.cmd("keepjumps normal! Gzb")
  end)
end

--- Show a transcript and its prompt beside what is there, and go to the prompt.
---@param transcript integer
function M.open(transcript)
  local prompt = M.prompt(transcript)
  local window = M.showing(transcript)
  local is_new = not window
  if not window then
    local width = config.current.width
    local columns = math.floor(width < 1 and vim.o.columns * width or width)
    window = vim.api.nvim_open_win(transcript, false, { split = "right", win = -1, width = columns })
    options(window, transcript)
  end
  local below = M.showing(prompt)
  if not below then
    below = vim.api.nvim_open_win(prompt, false, {
      split = "below",
      win = window,
      height = config.current.prompt_height,
    })
    vim.wo[below][0].winfixheight = true
    vim.wo[below][0].winbar = "prompt"
    vim.wo[below][0].statusline = " prompt "
  end
  if is_new then
    M.follow(window) -- in the height that is left to it
  end
  vim.api.nvim_set_current_win(below)
end

--- Close the windows of a transcript in this tab page; the agent goes on.
---@param transcript integer
function M.close(transcript)
  for _, buffer in ipairs({ prompts[transcript] or -1, transcript }) do
    local window = M.showing(buffer)
    if window and #vim.api.nvim_tabpage_list_wins(0) > 1 then
      vim.api.nvim_win_close(window, true)
    end
  end
end

--- Take the whole text of a prompt out of it.
---@param transcript integer
---@return string
function M.take_prompt(transcript)
  local buffer = M.prompt(transcript)
  local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, true), "\n")
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, {})
  return vim.trim(text)
end

--- Put a text back before what is in the prompt by now.
---@param transcript integer
---@param text string
function M.give_back(transcript, text)
  local buffer = M.prompt(transcript)
  local lines = vim.split(text, "\n", { plain = true })
  local there = vim.api.nvim_buf_get_lines(buffer, 0, -1, true)
  if #there > 1 or there[1] ~= "" then
    vim.list_extend(lines, there)
  end
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
end

--- Go to a new window below all others, with a buffer of its own that is gone with it. Whoever closes it is back in the
--- window before, and all others have their sizes again: Neovim would go to the first one and give the room to
--- the prompt.
---@param line string Its 'statusline'.
---@param height integer
---@param given table<string, any> Options of the buffer.
---@return integer buffer
function M.below(line, height, given)
  local from, sizes = vim.api.nvim_get_current_win(), vim.fn.winrestcmd()
  vim.cmd(("botright %dnew"):format(height))
  local window = vim.api.nvim_get_current_win()
  vim.api.nvim_create_autocmd("WinClosed", {
    pattern = tostring(window),
    once = true,
    callback = function()
      local leaving = vim.api.nvim_get_current_win() == window
      vim.schedule(function()
        if leaving and vim.api.nvim_win_is_valid(from) then
          vim.api.nvim_set_current_win(from)
          vim.cmd("silent! " .. sizes)
        end
      end)
    end,
  })
  vim.wo[0][0].statusline = line
  local buffer = vim.api.nvim_get_current_buf()
  local usual = { buftype = "nofile", bufhidden = "wipe", swapfile = false }
  for name, value in pairs(vim.tbl_extend("keep", given, usual)) do
    vim.bo[buffer][name] = value
  end
  return buffer
end

--- Show a text that is too long for the transcript.
---@param text string
function M.show(text)
  local buffer = M.below(" block ", math.floor(vim.o.lines / 2), {})
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, vim.split(text, "\n", { plain = true }))
  vim.bo[buffer].modifiable = false
end

--- Show the status above a transcript, in each window that it is in.
---@param transcript integer
---@param status string
function M.status(transcript, status)
  if statuses[transcript] == status then
    return
  end
  statuses[transcript] = status
  for _, window in ipairs(vim.fn.win_findbuf(transcript)) do
    vim.wo[window][0].winbar = status:gsub("%%", "%%%%")
  end
end

--- Give the transcript the keys that answer what is asked, while something is.
---@param view agentls.View
---@param requests agentls.OpenRequest[]
function M.ask(view, requests)
  local keys = config.current.keys
  local approvals = vim.tbl_filter(function(request)
    return request.kind == "approval"
  end, requests)
  local answers = { { keys.allow, "allow" }, { keys.deny, "deny" }, { keys.stop, "deny-and-stop" } }
  local hints = {}
  for _, answer in ipairs(answers) do
    local key, decision = answer[1], answer[2]
    if key then
      table.insert(hints, ("[%s] %s"):format(key, decision))
      if #approvals > 0 and not asking[view.buffer] then
        map(view.buffer, "n", key, "AgentAnswer " .. decision)
      elseif #approvals == 0 and asking[view.buffer] then
        vim.keymap.del("n", key, { buffer = view.buffer })
      end
    end
  end
  asking[view.buffer] = #approvals > 0 or nil
  view:hint(approvals, table.concat(hints, " "))
end

vim.api.nvim_create_autocmd("BufWinEnter", {
  group = ASKS,
  pattern = "agentls://*/transcript",
  callback = function(event)
    options(vim.api.nvim_get_current_win(), event.buf)
  end,
})

return M
