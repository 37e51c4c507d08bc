-- For all Lua code of the repository; scripts/check gives it to luacheck.
std = "luajit"
max_line_length = 120

-- What may be written in Neovim's own table; the rest of it is read.
local settings = { read_only = false, other_fields = true }
read_globals = {
  vim = {
    other_fields = true,
    fields = {
      b = settings, bo = settings, env = settings, g = settings, go = settings, o = settings, opt = settings,
      opt_local = settings, t = settings, v = settings, w = settings, wo = settings,
    },
  },
}

-- Made from the wire types: a class lists all that a field may be, on one line.
files["**/types.lua"] = { max_comment_line_length = false }
