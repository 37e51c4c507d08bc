--- What the plugin says to the person, always under its name.

local M = {}

---@param text string
---@param level integer
---@param group string
local function tell(text, level, group)
  text = "agentls: " .. text:gsub("%s*\n%s*", " ")
  if vim.fn.strdisplaywidth(text) <= vim.v.echospace then
    vim.notify(text, level)
    return
  end
  -- What does not fit would have to be confirmed before the person can go on, but for this command, which shows a part;
  -- `:messages` has all of it.
  vim.cmd.echohl(group)
  vim.cmd.echomsg(vim.fn.string(text))
  vim.cmd.echohl("None")
end

---@param text string
function M.say(text)
  tell(text, vim.log.levels.INFO, "None")
end

---@param text string
function M.complain(text)
  tell(text, vim.log.levels.ERROR, "ErrorMsg")
end

return M
