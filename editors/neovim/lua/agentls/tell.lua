--- What the plugin says to the person, always under its name.

local M = {}

---@type fun()? What was said in Insert mode, where Neovim draws its `-- INSERT --` over it at once.
local unseen

---@param text string
---@param level integer
---@param group string
local function tell(text, level, group)
  text = "agentls: " .. text:gsub("%s*\n%s*", " ")
  -- What does not fit would have to be confirmed before the person can go on, but for this command, which shows a part;
  -- `:messages` has all of it.
  local function show()
    vim.cmd.echohl(group)
    vim.cmd.echomsg(vim.fn.string(text))
    vim.cmd.echohl("None")
  end
  if vim.fn.strdisplaywidth(text) <= vim.v.echospace then
    vim.notify(text, level)
  else
    show()
  end
  unseen = vim.o.showmode and vim.fn.mode():find("^[iR]") and show or nil
end

vim.api.nvim_create_autocmd("InsertLeave", {
  group = vim.api.nvim_create_augroup("agentls.tell", {}),
  callback = function()
    if unseen then
      vim.schedule(unseen)
      unseen = nil
    end
  end,
})

---@param text string
function M.say(text)
  tell(text, vim.log.levels.INFO, "None")
end

---@param text string
function M.complain(text)
  tell(text, vim.log.levels.ERROR, "ErrorMsg")
end

return M
