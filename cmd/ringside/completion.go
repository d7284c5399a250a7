package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown by ringside completion --help.
func (c *completionCmd) Help() string {
	return `Prints a script that lets the shell complete commands and flags. It knows those of this version: make it anew after an upgrade.`
}

// Run prints the script. It is made of what kong knows of the commands, so nothing else has to be kept in step.
func (c *completionCmd) Run(env *environment, app *kong.Kong) error {
	levels := levelsOf(app.Model.Node)
	write := map[string]func(io.Writer, []level) error{"bash": writeBash, "zsh": writeZsh, "fish": writeFish}[c.Shell]
	return write(env.stdout, levels)
}

// level is what can follow one command.
type level struct {
	path     string // "" is the program itself
	commands []choice
	flags    []choice
	files    bool // an argument is a file
}

type choice struct {
	word, help string
	short      string   // such as -c; empty: it has none
	value      bool     // it has one
	file       bool     // which is a file
	values     []string // or one of these
}

// levelsOf lists the command and all below it. Aliases and hidden commands are none.
func levelsOf(node *kong.Node) []level {
	l := level{path: pathOf(node)}
	for n := node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if f.Hidden {
				continue
			}
			c := choice{word: "--" + f.Name, help: f.Help, value: !f.IsBool(), file: f.Tag.Type == "path" || f.PlaceHolder == "FILE"}
			if f.Enum != "" {
				c.values = f.EnumSlice()
			}
			if f.Short != 0 {
				c.short = "-" + string(f.Short)
			}
			if i := strings.Index(c.help, " (default:"); i > 0 {
				c.help = c.help[:i]
			}
			l.flags = append(l.flags, c)
		}
	}
	for _, p := range node.Positional {
		l.files = l.files || p.Name == "file"
		if p.Enum != "" {
			for _, v := range p.EnumSlice() {
				l.commands = append(l.commands, choice{word: v})
			}
		}
	}
	levels := []level{}
	for _, child := range node.Children {
		if child.Type != kong.CommandNode || child.Hidden {
			continue
		}
		l.commands = append(l.commands, choice{word: child.Name, help: child.Help})
		levels = append(levels, levelsOf(child)...)
	}
	return append([]level{l}, levels...)
}

// either is the pattern, of bash and zsh, for the long and the short form.
func (c choice) either() string {
	if c.short == "" {
		return c.word
	}
	return c.word + "|" + c.short
}

func words(choices []choice) string {
	var all []string
	for _, c := range choices {
		all = append(all, c.word)
	}
	return strings.Join(all, " ")
}

// quoted is a word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// caseOfPaths prints how bash and zsh find out which command is being written: the longest path that the words so far begin with, flags left out.
func caseOfPaths(levels []level) string {
	var paths []string
	for _, l := range levels[1:] {
		paths = append(paths, quoted(l.path))
	}
	return strings.Join(paths, "|")
}

func writeBash(w io.Writer, levels []level) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion of ringside: source <(ringside completion bash)
_ringside() {
	local word at='' next previous=${COMP_WORDS[COMP_CWORD-1]} current=${COMP_WORDS[COMP_CWORD]}
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		next=${at:+$at }$word
		case $next in
		%s) at=$next ;;
		esac
	done
	COMPREPLY=()
	local commands flags
	case $at in
`, caseOfPaths(levels))
	for _, l := range levels {
		fmt.Fprintf(&b, "\t%s)\n\t\tcommands=%s flags=%s\n", quoted(l.path), quoted(words(l.commands)), quoted(words(l.flags)))
		var values, files []string
		for _, f := range l.flags {
			switch {
			case f.file:
				files = append(files, f.either())
			case len(f.values) > 0:
				values = append(values, fmt.Sprintf("\t\t%s) COMPREPLY=($(compgen -W %s -- \"$current\")); return ;;\n", f.either(), quoted(strings.Join(f.values, " "))))
			}
		}
		if len(files)+len(values) > 0 {
			b.WriteString("\t\tcase $previous in\n")
			if len(files) > 0 {
				fmt.Fprintf(&b, "\t\t%s) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", strings.Join(files, "|"))
			}
			b.WriteString(strings.Join(values, "") + "\t\tesac\n")
		}
		b.WriteString("\t\t;;\n")
	}
	b.WriteString(`	esac
	case $current in
	-*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
	*) COMPREPLY=($(compgen -W "$commands" -- "$current")) ;;
	esac
}
complete -o default -F _ringside ringside
`)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeZsh(w io.Writer, levels []level) error {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef ringside
# zsh completion of ringside: ringside completion zsh >"${fpath[1]}/_ringside"
_ringside() {
	local word at='' next files=''
	local -a commands flags
	for word in "${(@)words[2,CURRENT-1]}"; do
		next=${at:+$at }$word
		case $next in
		%s) at=$next ;;
		esac
	done
	case $at in
`, caseOfPaths(levels))
	described := func(all []choice) string {
		var out []string
		for _, c := range all {
			entry := strings.ReplaceAll(c.word, ":", `\:`)
			if c.help != "" {
				entry += ":" + c.help
			}
			out = append(out, quoted(entry))
		}
		return strings.Join(out, " ")
	}
	for _, l := range levels {
		fmt.Fprintf(&b, "\t%s)\n\t\tcommands=(%s)\n\t\tflags=(%s)\n", quoted(l.path), described(l.commands), described(l.flags))
		if l.files {
			b.WriteString("\t\tfiles=yes\n")
		}
		var with []string // what follows flags that have a value
		for _, f := range l.flags {
			switch {
			case f.file:
				with = append(with, f.either()+") _files; return ;;")
			case len(f.values) > 0:
				with = append(with, f.either()+") compadd -- "+strings.Join(f.values, " ")+"; return ;;")
			case f.value:
				with = append(with, f.either()+") _message value; return ;;")
			}
		}
		if len(with) > 0 {
			fmt.Fprintf(&b, "\t\tcase ${words[CURRENT-1]} in\n\t\t%s\n\t\tesac\n", strings.Join(with, "\n\t\t"))
		}
		b.WriteString("\t\t;;\n")
	}
	b.WriteString(`	esac
	if [[ ${words[CURRENT]} == -* ]]; then
		_describe -o flag flags
	elif ((${#commands})); then
		_describe command commands
	elif [[ -n $files ]]; then
		_files
	fi
}
if [[ ${funcstack[1]} == _ringside ]]; then _ringside "$@"; else compdef _ringside ringside; fi
`)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFish(w io.Writer, levels []level) error {
	var b strings.Builder
	var paths []string
	for _, l := range levels[1:] {
		paths = append(paths, quoted(l.path))
	}
	fmt.Fprintf(&b, `# fish completion of ringside: ringside completion fish >~/.config/fish/completions/ringside.fish
function __ringside_at
	set -l at ''
	for word in (commandline -opc)[2..]
		set -l next (string trim -- "$at $word")
		contains -- $next %s; and set at $next
	end
	test "$at" = "$argv[1]"
end
complete -c ringside -f
`, strings.Join(paths, " "))
	for _, l := range levels {
		at := "-n " + quoted("__ringside_at "+quoted(l.path))
		for _, c := range l.commands {
			fmt.Fprintf(&b, "complete -c ringside %s -a %s -d %s\n", at, quoted(c.word), quoted(c.help))
		}
		for _, f := range l.flags {
			more := ""
			if f.short != "" {
				more = " -s " + f.short[1:]
			}
			switch {
			case f.file:
				more += " -r -F"
			case len(f.values) > 0:
				more += " -x -a " + quoted(strings.Join(f.values, " "))
			}
			fmt.Fprintf(&b, "complete -c ringside %s -l %s -d %s%s\n", at, strings.TrimPrefix(f.word, "--"), quoted(f.help), more)
		}
		if l.files {
			fmt.Fprintf(&b, "complete -c ringside %s -F\n", at)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
