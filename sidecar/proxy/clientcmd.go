package proxy

import (
	"bytes"
	"fmt"
	"strings"

	"ringside/resp"
)

const errBadName = resp.Refusal("ERR Client names cannot contain spaces, newlines or special characters.")

// clientHandler returns the handler of a CLIENT subcommand, or nil.
func clientHandler(name string) handler {
	switch strings.TrimPrefix(name, "client|") {
	case "id":
		return answer(func(cl *client, _ resp.Command, dst []byte) []byte { return resp.AppendInt(dst, cl.id) })
	case "getname":
		return answer(clientGetName)
	case "setname":
		return answer(clientSetName)
	case "info":
		return answer(func(cl *client, _ resp.Command, dst []byte) []byte {
			return resp.AppendVerbatim(dst, cl.proto, [3]byte{'t', 'x', 't'}, cl.describe()+"\n")
		})
	case "setinfo":
		return answer(clientSetInfo)
	case "no-evict", "no-touch":
		return answer(clientSwitch)
	}
	return nil
}

// clientSetInfo is CLIENT SETINFO, which Redis has since 7.2 and client libraries send on every connection.
func clientSetInfo(cl *client, cmd resp.Command, dst []byte) []byte {
	value := cmd.Args[3]
	if !validName(value) {
		return resp.AppendError(dst, fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", strings.ToLower(printable(cmd.Args[2]))))
	}
	switch {
	case bytes.EqualFold(cmd.Args[2], []byte("lib-name")):
		cl.libName = string(value)
	case bytes.EqualFold(cmd.Args[2], []byte("lib-ver")):
		cl.libVersion = string(value)
	default:
		return resp.AppendError(dst, fmt.Sprintf("ERR Unrecognized option '%s'", printable(cmd.Args[2])))
	}
	return resp.AppendSimple(dst, "OK")
}

func clientGetName(cl *client, _ resp.Command, dst []byte) []byte {
	if cl.name == "" {
		return resp.AppendNull(dst, cl.proto)
	}
	return resp.AppendBulk(dst, cl.name)
}

func clientSetName(cl *client, cmd resp.Command, dst []byte) []byte {
	if !validName(cmd.Args[2]) {
		return resp.AppendError(dst, string(errBadName))
	}
	cl.name = string(cmd.Args[2])
	return resp.AppendSimple(dst, "OK")
}

// validName holds names to what Redis allows, since they are shown in one line with others.
func validName(name []byte) bool {
	for _, c := range name {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

func clientSwitch(_ *client, cmd resp.Command, dst []byte) []byte {
	if bytes.EqualFold(cmd.Args[2], []byte("on")) || bytes.EqualFold(cmd.Args[2], []byte("off")) {
		return resp.AppendSimple(dst, "OK")
	}
	return resp.AppendError(dst, string(errSyntax))
}

func addressOf(a fmt.Stringer) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// commandCommand is COMMAND and its subcommands.
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
	case "docs":
		return resp.AppendMap(dst, cl.proto, 0) // the texts are Redis's; clients show none when there are none
	case "getkeys":
		return commandGetKeys(cl, cmd.Args[2:], dst)
	}
	if len(cmd.Args) > 2 {
		return resp.AppendError(dst, string(errSyntax)) // LIST FILTERBY
	}
	dst = resp.AppendArray(dst, len(all))
	for i := range all {
		dst = resp.AppendBulk(dst, all[i].Name)
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

func commandGetKeys(_ *client, args [][]byte, dst []byte) []byte {
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
	positions, err := info.Keys(args, nil)
	if err != nil {
		return resp.AppendError(dst, "ERR Invalid arguments specified for command")
	}
	dst = resp.AppendArray(dst, len(positions))
	for _, p := range positions {
		dst = resp.AppendBulk(dst, args[p])
	}
	return dst
}
