package resp

import "testing"

func TestEveryCommandHasAnIndexOfItsOwn(t *testing.T) {
	var names [CommandCount]string
	take := func(c *CommandInfo) {
		if c.Index < 0 || c.Index >= CommandCount || names[c.Index] != "" {
			t.Fatalf("%s has index %d of %d, which is out of range or that of another command", c.Name, c.Index, CommandCount)
		}
		names[c.Index] = c.Name
	}
	for i := range Commands() {
		c := &Commands()[i]
		take(c)
		for j := range c.Subcommands {
			take(&c.Subcommands[j])
		}
	}
	for i, name := range names {
		if name == "" {
			t.Errorf("no command has index %d", i)
		}
	}
}
