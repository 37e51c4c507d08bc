--- The connection to the server: started once, and started again with back-off when it is lost.
---
--- What was sent and not answered is sent again under its id after a lost connection, which the server takes as the
--- same message; so nothing is lost and nothing is said twice.

local config = require("agentls.config")

local M = {}

local FIRST_WAIT, LONGEST_WAIT = 250, 30000

---@class agentls.Pending
---@field method string
---@field params table
---@field answered fun(problem: lsp.ResponseError?, result: table?)

---@class agentls.Connection
---@field client vim.lsp.Client?
---@field root string?
---@field wait integer Milliseconds before the next try.
---@field leaving boolean
---@field problem string? Why there is no connection, in one line.
---@field pending table<string, agentls.Pending> Unanswered messages by id.
---@field order string[] Their ids as they were sent.
local connection = { wait = FIRST_WAIT, leaving = false, pending = {}, order = {} }

---@type table<string, fun(params: table)[]>
local listeners = {}

--- Call `listener` with the parameters of each notification of this method; "connected" and "lost" count as such.
---@param method string
---@param listener fun(params: table)
function M.on(method, listener)
  listeners[method] = listeners[method] or {}
  table.insert(listeners[method], listener)
end

local function tell(method, params)
  for _, listener in ipairs(listeners[method] or {}) do
    listener(params)
  end
end

--- The client while it is connected.
---@return vim.lsp.Client?
function M.client()
  local client = connection.client
  return client and client.initialized and not client:is_stopped() and client or nil
end

--- Why there is no connection, or nil.
---@return string?
function M.problem()
  return connection.problem
end

--- The root folder of the workspace that is served.
---@return string?
function M.root()
  return connection.root
end

local function find_root()
  local name = vim.api.nvim_buf_get_name(0)
  local from = vim.bo.buftype == "" and name ~= "" and name or vim.uv.cwd() or "."
  return vim.fs.root(from, config.current.root_markers) or vim.uv.cwd() or "."
end

---@param buffer integer
local function is_document(buffer)
  return vim.api.nvim_buf_is_loaded(buffer)
    and vim.bo[buffer].buftype == ""
    and vim.api.nvim_buf_get_name(buffer) ~= ""
    and not vim.api.nvim_buf_get_name(buffer):find("^%a[%w+.-]*://")
end

local function attach_documents(client)
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if is_document(buffer) then
      vim.lsp.buf_attach_client(buffer, client.id)
    end
  end
end

local connect

local function lost(reason)
  connection.client = nil
  if connection.leaving then
    reason = connection.problem or reason -- Why we left says more than that it has ended.
  end
  connection.problem = reason
  tell("lost", { reason = reason })
  if connection.leaving then
    return
  end
  local wait = connection.wait
  connection.wait = math.min(wait * 2, LONGEST_WAIT)
  vim.defer_fn(function()
    if not connection.client and not connection.leaving then
      connect()
    end
  end, wait)
end

local function resend()
  for _, id in ipairs(connection.order) do
    local pending = connection.pending[id]
    if pending then
      M.request(pending.method, pending.params, pending.answered)
    end
  end
end

local function on_init(client)
  connection.wait = FIRST_WAIT
  connection.problem = nil
  local offered = vim.tbl_get(client.server_capabilities, "experimental", "agent", "version")
  if offered ~= 1 then
    connection.leaving = true
    connection.problem = "the server does not speak version 1 of the agent extension"
    client:stop()
    return
  end
  attach_documents(client)
  tell("connected", {})
  resend()
end

--- A transport to the server. Neovim would tell of its end in a message that has to be confirmed; we tell it ourselves,
--- where the person looks, so `ended` is given the reason and Neovim a good end.
---@param ended fun(code: integer, signal: integer)
local function transport(ended)
  local settings = config.current
  return function(dispatchers)
    local on_exit = dispatchers.on_exit
    dispatchers.on_exit = function(code, signal)
      ended(code, signal)
      on_exit(0, 0)
    end
    if settings.socket then
      return vim.lsp.rpc.connect(vim.fs.normalize(settings.socket))(dispatchers)
    end
    return vim.lsp.rpc.start(settings.cmd, dispatchers, { cwd = connection.root, env = settings.env })
  end
end

connect = function()
  local settings = config.current
  local handlers = {}
  for _, method in ipairs({ "agent/blocks", "agent/state", "agent/context", "agent/attention", "agent/listChanged" }) do
    handlers[method] = function(_, params)
      tell(method, params)
    end
  end
  local version = vim.version()
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  capabilities.experimental = {
    agent = {
      version = 1,
      -- Without what it was built from: people read it where they see who has decided.
      client = { name = "neovim", version = ("%d.%d.%d"):format(version.major, version.minor, version.patch) },
      answers = true,
      editorState = true,
    },
  }
  local done, status = false, { 0, 0 }
  local ok, id = pcall(vim.lsp.start, {
    name = "agentls",
    cmd = transport(function(code, signal)
      status = { code, signal }
    end),
    root_dir = connection.root,
    workspace_folders = { { uri = vim.uri_from_fname(connection.root), name = vim.fs.basename(connection.root) } },
    capabilities = capabilities,
    handlers = handlers,
    on_init = on_init,
    on_exit = vim.schedule_wrap(function()
      if not done then
        done = true
        lost(("the server has ended (status %d, signal %d)"):format(status[1], status[2]))
      end
    end),
  }, {
    attach = false,
    silent = true,
    reuse_client = function()
      return false
    end,
  })
  if not ok or not id then
    done = true
    lost(
      settings.socket and ('nothing listens at "%s"'):format(settings.socket)
        or ('"%s" cannot be started'):format(settings.cmd[1])
    )
    return
  end
  connection.client = vim.lsp.get_client_by_id(id)
end

--- Connect, unless that is done or being tried.
function M.start()
  if connection.client or connection.root then
    return
  end
  connection.root = find_root()
  connection.leaving = false
  connect()
  local group = vim.api.nvim_create_augroup("agentls.client", {})
  vim.api.nvim_create_autocmd({ "BufReadPost", "BufNewFile", "BufFilePost" }, {
    group = group,
    callback = function(event)
      local client = M.client()
      if client and is_document(event.buf) then
        vim.lsp.buf_attach_client(event.buf, client.id)
      end
    end,
  })
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = group,
    callback = function()
      connection.leaving = true
    end,
  })
end

--- Ask the server. `answered` is called once, in the main loop; without a connection with an error at once.
---@param method string
---@param params table
---@param answered fun(problem: lsp.ResponseError?, result: table?)
function M.request(method, params, answered)
  local client = M.client()
  local sent = client and client:request(method, params, answered)
  if not sent then
    answered({ code = -32002, message = connection.problem or "the server is not connected yet" }, nil)
  end
end

--- Send what carries a `messageId`: kept until it is answered, over lost connections.
---@param method string
---@param params table
---@param answered fun(problem: lsp.ResponseError?, result: table?)
function M.send(method, params, answered)
  local id = params.messageId
  local pending = {
    method = method,
    params = params,
    answered = function(problem, result)
      if problem and not M.client() then
        return -- It stays, and is sent again once there is a connection.
      end
      connection.pending[id] = nil
      connection.order = vim.tbl_filter(function(other)
        return other ~= id
      end, connection.order)
      answered(problem, result)
    end,
  }
  connection.pending[id] = pending
  table.insert(connection.order, id)
  if M.client() then
    M.request(method, params, pending.answered)
  end
end

--- How many messages are not answered yet.
---@return integer
function M.unanswered()
  return #connection.order
end

--- Tell the server, where there is a connection.
---@param method string
---@param params table
function M.notify(method, params)
  local client = M.client()
  if client then
    client:notify(method, params)
  end
end

--- A new id for a message.
---@return string
function M.new_id()
  local random = vim.uv.random(16)
  return "n" .. random:gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end)
end

return M
