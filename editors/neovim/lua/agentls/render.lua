--- Blocks as lines of text. Pure: what is drawn depends on the block alone.

local M = {}

local ICONS = {
  user = "▌",
  assistant = "▌",
  reasoning = "∴",
  tool = "⚙",
  approval = "?",
  question = "?",
  context = "◇",
  ["retry"] = "↻",
  error = "✗",
  ["turn-end"] = "─",
}

---@type table<string, string>
M.groups = {
  user = "AgentlsUser",
  assistant = "AgentlsAssistant",
  reasoning = "AgentlsDim",
  tool = "AgentlsTool",
  approval = "AgentlsAsks",
  question = "AgentlsAsks",
  context = "AgentlsDim",
  ["retry"] = "AgentlsAsks",
  error = "AgentlsError",
  ["turn-end"] = "AgentlsDim",
}

-- Bidirectional controls can make a command read as another one; the server shows them already, and so do we.
local HIDDEN = {
  ["\226\128"] = { [0x8B] = true, [0x8C] = true, [0x8E] = true, [0x8F] = true },
  ["\226\129"] = {},
  ["\216"] = { [0x9C] = true },
}
for byte = 0xAA, 0xAE do
  HIDDEN["\226\128"][byte] = true
end
for byte = 0xA6, 0xA9 do
  HIDDEN["\226\129"][byte] = true
end

local function code_point(text)
  return ("<U+%04X>"):format(vim.fn.char2nr(text))
end

--- The text with control and bidirectional characters made visible; newlines and tabs stay.
---@param text string
---@return string
function M.safe(text)
  text = text:gsub("[%z\1-\8\11-\31\127]", code_point)
  if not text:find("[\194\216\226]") then
    return text
  end
  text = text:gsub("\194[\128-\159]", code_point)
  for lead, trails in pairs(HIDDEN) do
    text = text:gsub(lead .. "[\128-\191]", function(character)
      return trails[character:byte(-1)] and code_point(character) or nil
    end)
  end
  return text
end

--- One line of text: newlines are shown as well.
---@param text string
---@return string
function M.one_line(text)
  return (M.safe(text):gsub("\n", " "))
end

--- Whether a block is drawn as a fold: its text is a detail that a reader opens.
---@param block agentls.Block
---@return boolean
function M.folds(block)
  return block.collapsed == true or block.kind == "reasoning" or block.kind == "tool" or block.kind == "context"
end

--- The first line of a block: who or what it is, and its summary.
---@param block agentls.Block
---@return string
function M.header(block)
  local parts = { block.title or block.kind }
  if block.producer and block.producer ~= block.title then
    table.insert(parts, block.producer)
  end
  if block.call and block.call.state ~= "done" then
    table.insert(parts, block.call.state)
  elseif block.kind ~= "turn-end" and (block.state == "interrupted" or block.state == "failed") then
    table.insert(parts, block.state)
  end
  if block.summary then
    table.insert(parts, block.summary)
  end
  if block.more and block.more > 0 then
    table.insert(parts, ("%d bytes more, :AgentBlock reads them"):format(block.more))
  end
  return M.one_line((ICONS[block.kind] or "▌") .. " " .. table.concat(parts, " · "))
end

--- The lines of a block: its header, its body, and an empty line after it.
---@param block agentls.Block
---@param body string
---@return string[]
function M.lines(block, body)
  local lines = { M.header(block) }
  if body ~= "" then
    vim.list_extend(lines, vim.split(M.safe(body), "\n", { plain = true }))
  end
  table.insert(lines, "")
  return lines
end

--- What the line above the transcript says, without the escapes of a status line.
---@param state agentls.AgentState
---@param unanswered integer
---@param problem string?
---@return string
function M.status(state, unanswered, problem)
  local parts = { ("%s/%s"):format(state.model.provider, state.model.id) }
  if not state.model.usable then
    parts[1] = parts[1] .. " (not usable)"
  end
  if state.title then
    table.insert(parts, 1, state.title)
  end
  local turn = state.turn
  if problem then
    table.insert(parts, problem)
  elseif turn then
    table.insert(parts, ("%s, turn %d step %d"):format(state.status, turn.number, turn.step))
  else
    table.insert(parts, state.status)
  end
  if #state.requests > 0 then
    table.insert(parts, "needs you")
  end
  if #state.inbox > 0 then
    table.insert(parts, ("%d waiting"):format(#state.inbox))
  end
  if state.hold then
    table.insert(parts, ("held (%s)"):format(state.hold.cause))
  end
  if state.store ~= "ok" then
    table.insert(parts, "store " .. state.store)
  end
  if state.mode ~= "ask" then
    table.insert(parts, state.mode)
  end
  if unanswered > 0 and problem then
    table.insert(parts, ("%d unsent"):format(unanswered))
  end
  return M.one_line(table.concat(parts, " · "))
end

return M
