package systemtest

import (
	"os/exec"
	"strings"
	"testing"
)

// The points at which tests let the program fail, and the rules that they leave out, are not in the product: not a symbol is left of them.
func TestTheProductHasNoFailpoints(t *testing.T) {
	symbols, err := exec.Command("go", "tool", "nm", program(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, symbols)
	}
	if !strings.Contains(string(symbols), "ringside/cache.") {
		t.Error("there are no symbols to look at")
	}
	for line := range strings.Lines(string(symbols)) {
		if strings.Contains(line, "failpoint") {
			t.Error(line)
		}
	}
}
