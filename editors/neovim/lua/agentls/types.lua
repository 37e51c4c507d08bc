-- Made by `python -m agentls.lsp.reference`; do not edit.

---@class agentls.Action
---@field title string
---@field command string
---@field arguments? any[]

---@class agentls.AgentClient
---@field version integer
---@field client? agentls.ClientName
---@field answers? boolean
---@field editorState? boolean
---@field diagnostics? boolean
---@field saves? boolean
---@field editorQueries? string[]
---@field openDiff? boolean

---@class agentls.AgentParams
---@field agentId string

---@class agentls.AgentServer
---@field version 1
---@field instance string
---@field methods string[]
---@field blockKinds ("user"|"assistant"|"reasoning"|"tool"|"approval"|"question"|"context"|"plan"|"todo"|"retry"|"compaction"|"error"|"turn-end")[]

---@class agentls.AgentState
---@field agentId string
---@field epoch string
---@field rev integer
---@field title? string
---@field status "idle"|"running"|"waiting"|"suspended"
---@field turn? agentls.Turn
---@field lastTurn? agentls.LastTurn
---@field inbox agentls.Waiting[]
---@field hold? agentls.Hold
---@field requests agentls.OpenRequest[]
---@field model agentls.Model
---@field mode string
---@field usage agentls.StateUsage
---@field todos any[]
---@field jobs any[]
---@field editors agentls.Editor[]
---@field store "ok"|"unavailable"|"read-only"

---@class agentls.Answer
---@field decision "allow"|"deny"|"deny-and-stop"
---@field note? string
---@field remember? nil
---@field content? any

---@class agentls.AnswerParams
---@field agentId string
---@field requestId string
---@field shown string
---@field answer agentls.Answer

---@class agentls.AnsweredResult
---@field outcome "accepted"|"already-resolved"|"changed"
---@field by? string

---@class agentls.AppendOp
---@field op "append"
---@field id string
---@field offset integer
---@field text string

---@class agentls.AttachParams
---@field agentId string
---@field epoch? string
---@field since? integer

---@class agentls.AttachResult
---@field state agentls.AgentState
---@field ops (agentls.PutOp|agentls.AppendOp|agentls.DropOp)[]
---@field reset boolean
---@field rev integer
---@field epoch string
---@field before? [integer, integer]

---@class agentls.AttentionParams
---@field agentId string
---@field kind "needs-you"|"done"|"failed"
---@field title string

---@class agentls.Block
---@field id string
---@field order [integer, integer]
---@field rev integer
---@field kind "user"|"assistant"|"reasoning"|"tool"|"approval"|"question"|"context"|"plan"|"todo"|"retry"|"compaction"|"error"|"turn-end"
---@field seq? integer
---@field turn? integer
---@field step? integer
---@field role? "user"|"assistant"
---@field state? "streaming"|"done"|"failed"|"interrupted"|"rewound"
---@field volatile? boolean
---@field title? string
---@field summary? string
---@field body? string
---@field more? integer
---@field collapsed? boolean
---@field form? string
---@field producer? string
---@field locations? agentls.Location[]
---@field actions? agentls.Action[]
---@field diff? agentls.FileDiff[]
---@field images? agentls.Image[]
---@field call? agentls.Call
---@field finish? string
---@field reason? string
---@field request? string
---@field usage? agentls.Usage
---@field children? string[]

---@class agentls.BlockParams
---@field agentId string
---@field id string
---@field from? integer
---@field to? integer

---@class agentls.BlockResult
---@field id string
---@field text string
---@field from integer
---@field to integer
---@field size integer

---@class agentls.BlocksParams
---@field agentId string
---@field epoch string
---@field rev integer
---@field ops (agentls.PutOp|agentls.AppendOp|agentls.DropOp)[]

---@class agentls.Call
---@field name string
---@field arguments string
---@field state "running"|"done"|"failed"|"denied"|"not-run"

---@class agentls.CancelParams
---@field agentId string
---@field turn? integer
---@field keepInbox? boolean

---@class agentls.CancelledResult
---@field outcome "cancelled"|"idle"|"stale"
---@field inbox agentls.Waiting[]

---@class agentls.ChangedResult
---@field outcome "done"|"gone"
---@field inbox agentls.Waiting[]
---@field content? any[]

---@class agentls.ClientName
---@field name string
---@field version? string

---@class agentls.ConfigureParams
---@field agentId string
---@field model? string
---@field mode? "ask"|"read-only"
---@field title? string
---@field archived? nil

---@class agentls.ContextParams
---@field agentId string
---@field rev integer
---@field form string
---@field producer string
---@field title string
---@field summary? string
---@field blockId string
---@field supersedes? string

---@class agentls.CreateParams
---@field workspaceUri string
---@field model? string
---@field mode? "ask"|"read-only"
---@field title? string
---@field from? agentls.ForkParams
---@field preset? nil

---@class agentls.DeletedResult
---@field outcome "deleted"

---@class agentls.DropOp
---@field op "drop"
---@field id string

---@class agentls.EditParams
---@field agentId string
---@field messageId string
---@field content string|agentls.TextContent[]

---@class agentls.Editor
---@field client string
---@field connection integer

---@class agentls.EditorStateParams
---@field activeUri? string
---@field selections? agentls.Range[]
---@field visibleRanges? agentls.Range[]
---@field openUris? string[]
---@field dirtyUris? string[]

---@class agentls.Empty

---@class agentls.FileDiff
---@field uri string
---@field hunks any[]

---@class agentls.FollowupParams
---@field agentId string
---@field messageId string
---@field content string|agentls.TextContent[]
---@field mentions? any[]

---@class agentls.ForkParams
---@field agentId string
---@field turn integer

---@class agentls.Hold
---@field cause "cancel"|"error"|"blocked"|"interrupted"|"person"

---@class agentls.Image
---@field id string
---@field mediaType string
---@field width? integer
---@field height? integer

---@class agentls.InjectParams
---@field agentId string
---@field messageId string
---@field content string|agentls.TextContent[]
---@field context table<string, any>

---@class agentls.LastTurn
---@field number integer
---@field reason string

---@class agentls.ListChangedParams
---@field workspaceUri string

---@class agentls.ListParams
---@field workspaceUri? string
---@field query? string
---@field cursor? string
---@field limit? integer

---@class agentls.ListResult
---@field agents agentls.Listed[]
---@field nextCursor? string

---@class agentls.Listed
---@field id string
---@field workspaceUri string
---@field parent? string
---@field title? string
---@field status "idle"|"running"|"waiting"|"suspended"|"stored"
---@field model? agentls.ListedModel
---@field createdAt integer
---@field updatedAt integer
---@field summary? string
---@field damaged? string

---@class agentls.ListedModel
---@field provider string
---@field id string
---@field usable? boolean

---@class agentls.Location
---@field uri string
---@field line integer
---@field endLine? integer

---@class agentls.Model
---@field provider string
---@field id string
---@field usable boolean

---@class agentls.ModelRow
---@field provider string
---@field id string
---@field usable boolean
---@field contextWindow integer
---@field keySource? string
---@field problem? string

---@class agentls.ModelsParams

---@class agentls.ModelsResult
---@field models agentls.ModelRow[]

---@class agentls.MoveParams
---@field agentId string
---@field messageId string
---@field before? string

---@class agentls.OpenRequest
---@field requestId string
---@field kind "approval"|"question"
---@field blockId string
---@field shown string
---@field agentId string

---@class agentls.PageParams
---@field agentId string
---@field before [integer, integer]
---@field limit? integer

---@class agentls.PageResult
---@field ops (agentls.PutOp|agentls.AppendOp|agentls.DropOp)[]
---@field before? [integer, integer]

---@class agentls.PendingParams
---@field agentId string
---@field messageId string

---@class agentls.Position
---@field line integer
---@field character integer

---@class agentls.PutOp
---@field op "put"
---@field block agentls.Block
---@field cleared? string[]

---@class agentls.Range
---@field start agentls.Position
---@field end agentls.Position

---@class agentls.RetryParams
---@field agentId string
---@field messageId string
---@field turn integer

---@class agentls.SendParams
---@field agentId string
---@field messageId string
---@field content string|agentls.TextContent[]
---@field mentions? any[]
---@field target? "next-turn"|"next-step"
---@field wakeup? boolean

---@class agentls.SentResult
---@field messageId string
---@field outcome "started"|"queued"|"steering"|"injected"|"refused"
---@field turn? integer
---@field position? integer
---@field reason? "id-conflict"|"store-unavailable"|"read-only"|"no-turn"|"not-retryable"|"turn-open"
---@field content? any[]
---@field repeated? boolean
---@field now? "pending"|"held"|"taken"|"discarded"

---@class agentls.StateUsage
---@field inputTokens integer
---@field outputTokens integer
---@field cacheReadTokens integer
---@field cacheWriteTokens integer
---@field reasoningTokens integer
---@field contextTokens integer
---@field contextWindow integer
---@field costUsd? number

---@class agentls.SteerParams
---@field agentId string
---@field messageId string
---@field content string|agentls.TextContent[]
---@field mentions? any[]
---@field expectedTurn? integer
---@field ifIdle? "start"|"refuse"

---@class agentls.TextContent
---@field type "text"
---@field text string

---@class agentls.Turn
---@field number integer
---@field step integer
---@field trigger string
---@field startedAt integer

---@class agentls.Usage
---@field inputTokens integer
---@field outputTokens integer
---@field cacheReadTokens integer
---@field cacheWriteTokens integer
---@field reasoningTokens integer

---@class agentls.Waiting
---@field messageId string
---@field lane "queued"|"steering"
---@field wakeup boolean
---@field held boolean
---@field text string
---@field more? integer

return {}
