--- What the person looks at, told to the server when it has changed and stood still for a moment.

local client = require("agentls.client")

local M = {}

local STILL = 100

local started = false
local told = ""
local timer

local function is_file(buffer)
  return vim.bo[buffer].buftype == "" and vim.api.nvim_buf_get_name(buffer) ~= ""
end

local function position(buffer, row, column, encoding)
  local line = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1] or ""
  local within = math.min(math.max(column, 0), #line)
  return { line = row, character = vim.str_utfindex(line, encoding, within, false) }
end

--- The selection, or the cursor as an empty range. A character-wise selection includes the character under its end.
local function selection(buffer, encoding)
  local mode = vim.fn.mode()
  local cursor = vim.api.nvim_win_get_cursor(0)
  if mode ~= "v" and mode ~= "V" then
    local at = position(buffer, cursor[1] - 1, cursor[2], encoding)
    return { start = at, ["end"] = at }
  end
  local from, to = vim.fn.getpos("v"), vim.fn.getpos(".")
  if from[2] > to[2] or (from[2] == to[2] and from[3] > to[3]) then
    from, to = to, from
  end
  local last = vim.api.nvim_buf_get_lines(buffer, to[2] - 1, to[2], false)[1] or ""
  local first_column, last_column = 0, #last
  if mode == "v" then
    first_column = from[3] - 1
    last_column = math.min(#last, to[3] - 1 + #vim.fn.strpart(last, to[3] - 1, 1, true))
  end
  return {
    start = position(buffer, from[2] - 1, first_column, encoding),
    ["end"] = position(buffer, to[2] - 1, last_column, encoding),
  }
end

---@param encoding "utf-8"|"utf-16"|"utf-32"
---@return table state The parameters of `agent/editorState`.
function M.state(encoding)
  local state = {}
  local buffer = vim.api.nvim_get_current_buf()
  if is_file(buffer) then
    state.activeUri = vim.uri_from_bufnr(buffer)
    state.selections = { selection(buffer, encoding) }
    local first, last = vim.fn.line("w0") - 1, vim.fn.line("w$") - 1
    state.visibleRanges = {
      { start = { line = first, character = 0 }, ["end"] = position(buffer, last, math.huge, encoding) },
    }
  end
  state.openUris, state.dirtyUris = {}, {}
  for _, one in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(one) and vim.bo[one].buflisted and is_file(one) then
      table.insert(state.openUris, vim.uri_from_bufnr(one))
      if vim.bo[one].modified then
        table.insert(state.dirtyUris, vim.uri_from_bufnr(one))
      end
    end
  end
  return state
end

--- Tell it now, if it is not what was told last.
function M.tell()
  local connected = client.client()
  if not connected then
    return
  end
  local state = M.state(connected.offset_encoding)
  local as_text = vim.json.encode(state)
  if as_text ~= told then
    told = as_text
    client.notify("agent/editorState", state)
  end
end

local function soon()
  timer:start(STILL, 0, vim.schedule_wrap(M.tell))
end

--- Tell from now on.
function M.start()
  if started then
    return
  end
  started = true
  timer = assert(vim.uv.new_timer())
  local group = vim.api.nvim_create_augroup("agentls.editor", {})
  -- stylua: ignore
  local events = {
    "BufEnter", "BufModifiedSet", "BufWritePost", "BufDelete", "CursorMoved", "CursorMovedI", "ModeChanged",
    "WinScrolled",
  }
  vim.api.nvim_create_autocmd(events, { group = group, callback = soon })
  client.on("connected", function()
    told = ""
    M.tell()
  end)
end

return M
