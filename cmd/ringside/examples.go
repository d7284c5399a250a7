package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are shown by --help of the commands whose own help has none. Names of commands are as in a command line.
func examples() map[string][]string {
	return map[string][]string{
		"serve":          {"ringside serve -c /etc/ringside/ringside.yaml"},
		"check-config":   {"ringside check-config ringside.yaml"},
		"ring":           {"ringside ring --admin 127.0.0.1:16101", "ringside ring --json | jq '.caches[] | [.name, .share]'"},
		"lookup":         {"ringside lookup user:42", "ringside lookup -- -a-key-with-a-hyphen"},
		"nodes":          {"ringside nodes", "ringside nodes --json | jq -r '.members[] | select(.state != \"alive\") | .name'"},
		"cache add":      {"ringside cache add c4 10.0.0.4:6379 --wait", "ringside cache add c5 10.0.0.5:6379 --weight 2 --flush"},
		"cache drain":    {"ringside cache drain c4 --wait && ringside cache remove c4"},
		"cache weight":   {"ringside cache weight c4 2 --wait"},
		"cache remove":   {"ringside cache remove c4"},
		"shard add":      {"ringside shard add s3 'postgres://ringside@pg-3:5432/app' --max-connections 100 --wait"},
		"shard weight":   {"ringside shard weight s1 0 && ringside move start --wait"},
		"shard attach":   {"ringside shard attach users"},
		"shard remove":   {"ringside shard remove s1"},
		"move plan":      {"ringside move plan", "ringside move plan --vnodes 0-1023 --to s2"},
		"move start":     {"ringside move start --wait", "ringside move start --vnodes 0-1023 --to s2"},
		"move status":    {"ringside move status"},
		"move cancel":    {"ringside move cancel 7"},
		"move verify":    {"ringside move verify && echo 'all rows are where they belong'"},
		"override set":   {"ringside override set big-tenant s2 --wait"},
		"override clear": {"ringside override clear big-tenant --wait"},
		"verify cache":   {"ringside verify cache --sample 10000"},
		"health":         {"ringside health --ready --admin 127.0.0.1:6381"},
		"version":        {"ringside version --json"},
		"completion": {
			"source <(ringside completion bash)", "ringside completion zsh >\"${fpath[1]}/_ringside\"",
			"ringside completion fish >~/.config/fish/completions/ringside.fish",
		},
		"top": {"ringside top", "ringside top --all --every 5s", "ringside top --once"},
	}
}

// addExamples puts the examples into the help.
func addExamples(k *kong.Kong) error {
	all := examples()
	return kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
		if node, ok := n.(*kong.Node); ok && node.Type == kong.CommandNode && !strings.Contains(node.Detail, "Example") {
			addExample(node, all[pathOf(node)])
		}
		return next(nil)
	})
}

func addExample(node *kong.Node, lines []string) {
	switch len(lines) {
	case 0:
		return
	case 1:
		node.Detail += "\n\nExample: " + lines[0]
	default:
		node.Detail += "\n\nExamples:\n\n  " + strings.Join(lines, "\n  ")
	}
	node.Detail = strings.TrimLeft(node.Detail, "\n")
}

// pathOf is the command as one writes it, without the program's name.
func pathOf(node *kong.Node) string {
	var words []string
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		words = append([]string{node.Name}, words...)
	}
	return strings.Join(words, " ")
}
