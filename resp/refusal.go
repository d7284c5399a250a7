package resp

import (
	"bytes"
	"strings"
)

// Redis shows at most this many bytes of a name, and of the arguments together.
const shownBytes = 128

// UnknownCommand is Redis's refusal of a command that it does not have. args must not be empty.
func UnknownCommand(args [][]byte) Refusal {
	var shown strings.Builder
	for _, a := range args[1:] {
		if shown.Len() >= shownBytes {
			break
		}
		room := shownBytes - shown.Len()
		shown.WriteByte('\'')
		shown.Write(cString(a, room))
		shown.WriteString("' ")
	}
	return oneLine("ERR unknown command '" + string(cString(args[0], shownBytes)) + "', with args beginning with: " + shown.String())
}

// UnknownSubcommand is Redis's refusal of a subcommand that a container does not have. args must have two elements at least.
func UnknownSubcommand(args [][]byte) Refusal {
	return oneLine("ERR unknown subcommand '" + string(cString(args[1], shownBytes)) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP.")
}

// WrongArity is Redis's refusal of a call with too few or too many arguments; name is CommandInfo.Name ("get", "client|setname").
func WrongArity(name string) Refusal {
	return Refusal("ERR wrong number of arguments for '" + name + "' command")
}

// cString cuts b where C's %.*s would: at a zero byte or the limit.
func cString(b []byte, limit int) []byte {
	b = b[:min(len(b), limit)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// oneLine blanks line breaks: the arguments come from the client.
func oneLine(s string) Refusal {
	return Refusal(strings.NewReplacer("\r", " ", "\n", " ").Replace(s))
}
