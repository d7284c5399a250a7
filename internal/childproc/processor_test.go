package childproc

import (
	"os"
	"testing"
	"time"
)

func TestProcessorTimeGrowsWithWork(t *testing.T) {
	begin, err := ProcessorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const enough = 30 * time.Millisecond // ps rounds to hundredths
	limit := time.Now().Add(10 * time.Second)
	for used := time.Duration(0); used < enough; {
		now, err := ProcessorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if used = now - begin; used < 0 {
			t.Fatalf("it went back by %v", -used)
		}
		if time.Now().After(limit) {
			t.Fatalf("only %v in ten seconds of work", used)
		}
	}
}

func TestProcessorTimeOfNobody(t *testing.T) {
	p := start(t, "sleep 60")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if used, err := ProcessorTime(p.PID()); err == nil {
		t.Errorf("a process that has ended is said to have used %v", used)
	}
}
