--- What a person may set, and its defaults.

local M = {}

---@class agentls.Config
---@field cmd string[] The server that is started when `socket` is not set.
---@field env table<string, string>? Set for that server beside Neovim's own environment.
---@field socket string? A socket on which `agentls serve --socket` listens; then no server is started.
---@field root_markers string[] What the root of a workspace holds; without one it is the working directory.
---@field model string? The model of new agents, as `provider/id`.
---@field mode "ask"|"read-only"|nil The mode of new agents.
---@field prompt_height integer Lines of the prompt's window.
---@field width number Columns of the transcript's window; less than 1 is a part of the screen.
---@field highlight boolean Whether the text is highlighted as Markdown.
---@field keys agentls.Keys Keys of the transcript and the prompt; `false` leaves one out.

---@class agentls.Keys
---@field send string|false
---@field send_insert string|false
---@field steer string|false
---@field cancel string|false
---@field allow string|false
---@field deny string|false
---@field stop string|false

---@type agentls.Config
M.defaults = {
  cmd = { "agentls", "serve" },
  root_markers = { ".git", ".hg" },
  prompt_height = 6,
  width = 0.42,
  highlight = true,
  keys = {
    send = "<CR>",
    send_insert = "<C-s>",
    steer = "<C-g>",
    cancel = "<C-c>",
    allow = "a",
    deny = "d",
    stop = "x",
  },
}

---@type agentls.Config
M.current = vim.deepcopy(M.defaults)

--- Take a person's settings. What has the wrong type or an unknown name is an error that names it.
---@param given table?
function M.set(given)
  given = given or {}
  for name in pairs(given) do
    if M.defaults[name] == nil and not vim.list_contains({ "env", "socket", "model", "mode" }, name) then
      error(('agentls: unknown setting "%s"; see :help agentls-settings'):format(name), 0)
    end
  end
  local merged = vim.tbl_deep_extend("force", vim.deepcopy(M.defaults), given)
  vim.validate("cmd", merged.cmd, "table")
  vim.validate("env", merged.env, "table", true)
  vim.validate("socket", merged.socket, "string", true)
  vim.validate("root_markers", merged.root_markers, "table")
  vim.validate("model", merged.model, "string", true)
  vim.validate("mode", merged.mode, function(mode)
    return mode == nil or mode == "ask" or mode == "read-only"
  end, '"ask" or "read-only"')
  vim.validate("prompt_height", merged.prompt_height, "number")
  vim.validate("width", merged.width, "number")
  vim.validate("highlight", merged.highlight, "boolean")
  vim.validate("keys", merged.keys, "table")
  M.current = merged
end

return M
