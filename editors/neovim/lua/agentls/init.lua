--- agentls in Neovim. Settings are all that is loaded at start; the rest comes with the first command.

---@class agentls.Plugin: agentls.Commands
local M = {}

--- Settings, all of them optional: |agentls-settings|.
---@param settings table?
function M.setup(settings)
  require("agentls.config").set(settings)
end

return setmetatable(M, {
  __index = function(_, name)
    return require("agentls.commands")[name]
  end,
})
