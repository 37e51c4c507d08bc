-- Run luacheck in Neovim's Lua, so that nothing has to be installed: nvim --clean -l luacheck.lua FOLDER ARGUMENTS...
-- FOLDER holds Debian's lua-check and lua-argparse, unpacked. Status and output are luacheck's.
local folder = table.remove(arg, 1)
package.path = ("%s/usr/share/lua/5.1/?.lua;%s/usr/share/lua/5.1/?/init.lua;"):format(folder, folder) .. package.path

local TYPES = { directory = "directory", file = "file" }

-- What luacheck asks of LuaFileSystem, which is a C module for another Lua.
package.preload.lfs = function()
  return {
    _VERSION = "LuaFileSystem by Neovim",
    currentdir = vim.uv.cwd,
    attributes = function(path, key)
      local facts = vim.uv.fs_stat(path)
      return facts and ({ mode = TYPES[facts.type] or "other", modification = facts.mtime.sec })[key]
    end,
    -- One entry a call, nil at the end, as the for loop there expects.
    dir = function(path)
      local entries = assert(vim.uv.fs_scandir(path))
      return function()
        return (vim.uv.fs_scandir_next(entries))
      end
    end,
  }
end

require("luacheck.main")
