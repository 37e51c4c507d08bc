--- The transcript's buffer: changed blocks become changed lines, and nothing else is touched.
---
--- Each block stands under an extended mark, so that its lines are found however much has grown before it. A block is a
--- header, its body, and an empty line; the last line of the buffer belongs to none.

local config = require("agentls.config")
local render = require("agentls.render")
local windows = require("agentls.windows")

local M = {}

local MARKS = vim.api.nvim_create_namespace("agentls.blocks")
local HINTS = vim.api.nvim_create_namespace("agentls.hints")

---@class agentls.View
---@field buffer integer
---@field transcript agentls.Transcript
---@field marks table<string, integer> The mark of each block that is drawn.
---@field blocks table<integer, string> The block of each mark.
---@field headers table<string, string>
---@field empty table<string, boolean> Whether the body that is drawn is empty.
local View = {}
View.__index = View

---@type table<integer, agentls.View>
local views = {}

--- A new view, in a buffer of its own.
---@param name string
---@param transcript agentls.Transcript
---@return agentls.View
function M.new(name, transcript)
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(buffer, name)
  vim.bo[buffer].bufhidden = "hide"
  vim.bo[buffer].swapfile = false
  vim.bo[buffer].undolevels = -1
  vim.bo[buffer].filetype = "agentls"
  vim.bo[buffer].modifiable = false
  if config.current.highlight then
    pcall(vim.treesitter.start, buffer, "markdown")
  end
  local view = setmetatable({ buffer = buffer, transcript = transcript }, View)
  view:_forget()
  vim.api.nvim_create_autocmd("BufWinEnter", {
    buffer = buffer,
    callback = function()
      view:fold(vim.api.nvim_get_current_win())
    end,
  })
  views[buffer] = view
  return view
end

--- The view that a buffer is of.
---@param buffer integer
---@return agentls.View?
function M.of(buffer)
  return views[buffer]
end

function View:_forget()
  self.marks, self.blocks, self.headers, self.empty = {}, {}, {}, {}
end

function View:_row(id)
  return vim.api.nvim_buf_get_extmark_by_id(self.buffer, MARKS, self.marks[id], {})[1]
end

--- Where a block ends: the row of the next one, or the last line.
function View:_end(id)
  local following = self.transcript:after(id)
  while following and not self.marks[following] do
    following = self.transcript:after(following)
  end
  return following and self:_row(following) or vim.api.nvim_buf_line_count(self.buffer) - 1
end

function View:_mark(id, row, block)
  local mark = vim.api.nvim_buf_set_extmark(self.buffer, MARKS, row, 0, {
    id = self.marks[id],
    end_row = row + 1,
    hl_group = render.groups[block.kind] or "AgentlsAssistant",
    hl_eol = true,
    priority = 150, -- over the colours of Markdown
  })
  self.marks[id], self.blocks[mark] = mark, id
end

-- Folds are made by hand: Neovim works out no 'foldexpr' while somebody is in Insert mode, not even elsewhere. A fold
-- grows by what is put before its last line, the empty one.

--- Take the fold of a block away in each window that has one; whether it was open there.
---@return table<integer, boolean>
function View:_unfold(first, last)
  local opened = {}
  for _, window in ipairs(vim.fn.win_findbuf(self.buffer)) do
    vim.api.nvim_win_call(window, function()
      if last > first and vim.fn.foldlevel(first + 1) > 0 then
        opened[window] = vim.fn.foldclosed(first + 1) == -1
        local view = vim.fn.winsaveview()
        vim.cmd(("keepjumps normal! %dGzd"):format(first + 1))
        vim.fn.winrestview(view)
      end
    end)
  end
  return opened
end

--- Fold a block in each window, and leave it open where it was.
---@param opened table<integer, boolean>
function View:_fold(first, last, opened)
  for _, window in ipairs(vim.fn.win_findbuf(self.buffer)) do
    vim.api.nvim_win_call(window, function()
      vim.cmd(("%d,%dfold"):format(first + 1, last))
      if opened[window] then
        vim.cmd(("%dfoldopen"):format(first + 1))
      end
    end)
  end
end

--- Fold the blocks in a window that has just come to show them.
---@param window integer
function View:fold(window)
  vim.api.nvim_win_call(window, function()
    vim.cmd("normal! zE")
    for _, id in ipairs(self.transcript:all()) do
      if self.marks[id] and render.folds(self.transcript:block(id)) then
        vim.cmd(("%d,%dfold"):format(self:_row(id) + 1, self:_end(id)))
      end
    end
  end)
end

function View:_put(id)
  local block, body = self.transcript:block(id), self.transcript:body(id)
  local lines = render.lines(block, body)
  local first, last
  if self.marks[id] then
    first, last = self:_row(id), self:_end(id)
  else
    first = self:_end(id)
    last = first
  end
  local opened = self:_unfold(first, last)
  vim.api.nvim_buf_set_lines(self.buffer, first, last, true, lines)
  self:_mark(id, first, block)
  if render.folds(block) then
    self:_fold(first, first + #lines, opened)
  end
  self.headers[id], self.empty[id] = lines[1], body == ""
end

--- Only the facts of a block have changed: its header is drawn again where it reads otherwise.
function View:_head(id)
  local block = self.transcript:block(id)
  local header = render.header(block)
  if header ~= self.headers[id] then
    local row = self:_row(id)
    vim.api.nvim_buf_set_lines(self.buffer, row, row + 1, true, { header })
    self:_mark(id, row, block)
    self.headers[id] = header
  end
end

function View:_append(id, text)
  if self.empty[id] then
    self:_put(id)
    return
  end
  local row = self:_end(id) - 2
  local line = vim.api.nvim_buf_get_lines(self.buffer, row, row + 1, true)[1]
  vim.api.nvim_buf_set_text(self.buffer, row, #line, row, #line, vim.split(render.safe(text), "\n", { plain = true }))
end

function View:_drop(id)
  local mark = self.marks[id]
  if mark then
    -- The transcript does not know it any more, so the end is that of the mark after it.
    local row = self:_row(id)
    local after = vim.api.nvim_buf_get_extmarks(self.buffer, MARKS, { row + 1, 0 }, -1, { limit = 1 })[1]
    local last = after and after[2] or vim.api.nvim_buf_line_count(self.buffer) - 1
    vim.api.nvim_buf_del_extmark(self.buffer, MARKS, mark)
    vim.api.nvim_buf_set_lines(self.buffer, row, last, true, {})
    self.marks[id], self.blocks[mark], self.headers[id], self.empty[id] = nil, nil, nil, nil
  end
end

--- Draw what has changed. Windows whose cursor is on the last line stay there; others stay where they are.
---@param changes agentls.Changes
function View:draw(changes)
  if not vim.api.nvim_buf_is_valid(self.buffer) then
    return
  end
  local following = {}
  local count = vim.api.nvim_buf_line_count(self.buffer)
  for _, window in ipairs(vim.fn.win_findbuf(self.buffer)) do
    if vim.api.nvim_win_get_cursor(window)[1] >= count then
      table.insert(following, window)
    end
  end
  vim.bo[self.buffer].modifiable = true
  if changes.reset then
    vim.api.nvim_buf_clear_namespace(self.buffer, MARKS, 0, -1)
    vim.api.nvim_buf_set_lines(self.buffer, 0, -1, true, {})
    self:_forget()
  end
  for _, id in ipairs(changes.dropped) do
    self:_drop(id)
  end
  for _, id in ipairs(changes.order) do
    local how = changes.blocks[id]
    if how == "head" and self.marks[id] then
      self:_head(id)
    elseif type(how) == "table" and self.marks[id] then
      self:_append(id, table.concat(how))
    else
      self:_put(id)
    end
  end
  vim.bo[self.buffer].modifiable = false
  for _, window in ipairs(following) do
    windows.follow(window)
  end
end

--- Say at each open request with which keys it is answered.
---@param requests agentls.OpenRequest[]
---@param hint string
function View:hint(requests, hint)
  vim.api.nvim_buf_clear_namespace(self.buffer, HINTS, 0, -1)
  for _, request in ipairs(requests) do
    if self.marks[request.blockId] then
      vim.api.nvim_buf_set_extmark(self.buffer, HINTS, self:_row(request.blockId), 0, {
        virt_lines = { { { hint, "AgentlsAsks" } } },
      })
    end
  end
end

--- The block that a row (from 0) belongs to, and the row of its header.
---@param row integer
---@return string? id, integer? first
function View:at(row)
  local found = vim.api.nvim_buf_get_extmarks(self.buffer, MARKS, { row, -1 }, 0, { limit = 1 })[1]
  if found then
    return self.blocks[found[1]], found[2]
  end
end

--- Show the block to the reader.
---@param window integer
---@param id string
function View:show(window, id)
  if self.marks[id] then
    vim.api.nvim_win_set_cursor(window, { self:_row(id) + 1, 0 })
  end
end

--- Forget the view with its buffer.
function View:close()
  views[self.buffer] = nil
  if vim.api.nvim_buf_is_valid(self.buffer) then
    vim.api.nvim_buf_delete(self.buffer, { force = true })
  end
end

--- 'foldtext' of a transcript: the header of the block, and how much is under it.
---@return [string, string][]
function M.foldtext()
  local view = views[vim.api.nvim_get_current_buf()]
  local from = vim.v.foldstart
  local id = view and view:at(from - 1)
  local block = id and view.transcript:block(id)
  local text = vim.api.nvim_buf_get_lines(0, from - 1, from, true)[1]
  local group = block and render.groups[block.kind] or "AgentlsDim"
  local lines = vim.v.foldend - from - 1
  return { { text, group }, { lines > 0 and ("  +%d"):format(lines) or "", "AgentlsDim" } }
end

return M
