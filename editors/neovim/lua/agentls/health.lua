--- `:checkhealth agentls`: what is there, what is missing, and the command that mends it.

local client = require("agentls.client")
local config = require("agentls.config")

local M = {}

local WAIT = 10000

local function check_neovim()
  local version = tostring(vim.version())
  if vim.fn.has("nvim-0.11") == 1 then
    vim.health.ok("Neovim " .. version)
  else
    vim.health.error(("Neovim %s is too old"):format(version), "install Neovim 0.11 or newer")
  end
end

---@return boolean
local function check_server()
  local settings = config.current
  if settings.socket then
    local path = vim.fs.normalize(settings.socket)
    local found = vim.uv.fs_stat(path)
    if found and found.type == "socket" then
      vim.health.ok(('the socket "%s" is there'):format(path))
      return true
    end
    vim.health.error(('there is no socket at "%s"'):format(path), "start it by: agentls serve --socket " .. path)
    return false
  end
  local program = settings.cmd[1]
  if vim.fn.executable(program) == 0 then
    vim.health.error(('"%s" is no program that can be run'):format(program), {
      "make it by: scripts/setup, in the clone of agentls",
      'name it by: require("agentls").setup({ cmd = { "/path/of/the/clone/.venv/bin/agentls", "serve" } })',
    })
    return false
  end
  local done = vim.system({ program, "--version" }, { text = true, env = settings.env }):wait(WAIT)
  if done.code == 0 then
    vim.health.ok(("%s, which is %s"):format(vim.trim(done.stdout), vim.fn.exepath(program)))
    return true
  end
  vim.health.error(('"%s --version" ends with status %d: %s'):format(program, done.code, vim.trim(done.stderr or "")))
  return false
end

local function check_models()
  local rows, problem
  client.request("agent/models", vim.empty_dict(), function(failed, result)
    rows, problem = result and result.models, failed and failed.message
  end)
  vim.wait(WAIT, function()
    return rows ~= nil or problem ~= nil
  end, 20)
  if not rows then
    vim.health.error("the models are not told: " .. (problem or ("no answer in %d s"):format(WAIT / 1000)))
    return
  end
  for _, row in ipairs(rows) do
    local name = ("model %s/%s"):format(row.provider, row.id)
    local key = row.keySource and (", key from " .. row.keySource) or ", needs no key"
    if row.usable then
      vim.health.ok(name .. key)
    else
      vim.health.warn(name .. key, row.problem)
    end
  end
end

local function check_connection()
  client.start()
  vim.wait(WAIT, function()
    return client.client() ~= nil or client.problem() ~= nil
  end, 20)
  local connected = client.client()
  if not connected then
    vim.health.error(client.problem() or ("the server does not answer in %d s"):format(WAIT / 1000), {
      "see what it says: " .. (config.current.socket and "at its terminal" or vim.lsp.log.get_filename()),
    })
    return
  end
  local server = connected.server_info or {}
  vim.health.ok(("connected to %s %s for %s"):format(server.name or "agentls", server.version or "", client.root()))
  check_models()
end

--- Run every check.
function M.check()
  vim.health.start("agentls")
  check_neovim()
  if check_server() then
    check_connection()
  end
end

return M
