package proxy

import (
	"bytes"
	"path"
	"strings"

	"ringside/resp"
)

// commandCommand is COMMAND and its subcommands, but for DOCS, whose texts are Redis's own.
func commandCommand(cl *client, cmd resp.Command, dst []byte) []byte {
	all := resp.Commands()
	if len(cmd.Args) == 1 {
		dst = resp.AppendArray(dst, len(all))
		for i := range all {
			dst = all[i].AppendInfo(dst, cl.proto)
		}
		return dst
	}
	switch string(bytes.ToLower(cmd.Args[1])) {
	case "count":
		return resp.AppendInt(dst, int64(len(all)))
	case "info":
		return commandInfo(cl, cmd.Args[2:], dst)
	case "getkeys":
		return commandGetKeys(cl, cmd.Args[2:], dst, false)
	case "getkeysandflags":
		return commandGetKeys(cl, cmd.Args[2:], dst, true)
	}
	return commandList(cmd.Args[2:], dst)
}

// commandList is COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern].
func commandList(args [][]byte, dst []byte) []byte {
	wanted := func(*resp.CommandInfo) bool { return true }
	if len(args) > 0 {
		if len(args) != 3 || !bytes.EqualFold(args[0], []byte("filterby")) {
			return resp.AppendError(dst, string(errSyntax))
		}
		value := strings.ToLower(string(args[2]))
		switch string(bytes.ToLower(args[1])) {
		case "module":
			wanted = func(*resp.CommandInfo) bool { return false }
		case "aclcat":
			wanted = func(info *resp.CommandInfo) bool { in, _ := info.HasCategory(value); return in }
		case "pattern":
			wanted = func(info *resp.CommandInfo) bool {
				matched, err := path.Match(value, info.Name)
				return matched && err == nil
			}
		default:
			return resp.AppendError(dst, string(errSyntax))
		}
	}
	var names []string
	var walk func(all []resp.CommandInfo)
	walk = func(all []resp.CommandInfo) {
		for i := range all {
			if wanted(&all[i]) {
				names = append(names, all[i].Name)
			}
			if len(args) > 0 { // only a filter looks at subcommands
				walk(all[i].Subcommands)
			}
		}
	}
	walk(resp.Commands())
	dst = resp.AppendArray(dst, len(names))
	for _, name := range names {
		dst = resp.AppendBulk(dst, name)
	}
	return dst
}

func commandInfo(cl *client, names [][]byte, dst []byte) []byte {
	if len(names) == 0 {
		return commandCommand(cl, resp.Command{Args: [][]byte{nil}}, dst)
	}
	dst = resp.AppendArray(dst, len(names))
	for _, name := range names {
		container, sub, isSub := bytes.Cut(name, []byte("|"))
		info := resp.Lookup(container)
		if info != nil && isSub {
			info = info.Sub(sub)
		}
		if info == nil {
			dst = resp.AppendNullArray(dst, cl.proto)
			continue
		}
		dst = info.AppendInfo(dst, cl.proto)
	}
	return dst
}

func commandGetKeys(cl *client, args [][]byte, dst []byte, withFlags bool) []byte {
	info := resp.Lookup(args[0])
	if info != nil && info.Subcommands != nil && len(args) > 1 {
		info = info.Sub(args[1])
	}
	switch {
	case info == nil:
		return resp.AppendError(dst, "ERR Invalid command specified")
	case info.Class == resp.ClassOther:
		return resp.AppendError(dst, "ERR The command has no key arguments")
	case !info.ArityOK(len(args)):
		return resp.AppendError(dst, "ERR Invalid number of arguments specified for command")
	}
	positions, flags, err := info.KeysWithFlags(args)
	if err != nil {
		return resp.AppendError(dst, "ERR Invalid arguments specified for command")
	}
	dst = resp.AppendArray(dst, len(positions))
	for i, p := range positions {
		if withFlags {
			dst = resp.AppendKeyFlags(resp.AppendBulk(resp.AppendArray(dst, 2), args[p]), cl.proto, flags[i])
			continue
		}
		dst = resp.AppendBulk(dst, args[p])
	}
	return dst
}
