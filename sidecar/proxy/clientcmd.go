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
