package childproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// outputGrace bounds how long the end of a child waits for its output pipe: grandchildren may hold it open.
const outputGrace = 3 * time.Second

// killWait bounds the wait for the kernel to confirm a SIGKILL.
const killWait = 10 * time.Second

// Options say what to run and how.
type Options struct {
	Path string   // the program, absolute or found in PATH
	Args []string // its arguments, without the program's name
	Dir  string   // working directory; "": that of this process
	Env  []string // nil: that of this process
	Log  io.Writer
	// Files are further ones that the child inherits, as descriptors 3 and up. They stay open here: close them once it runs.
	Files []*os.File
	// Credential runs the child as another user; only root may set it.
	Credential *syscall.Credential
	// DeathSignal is what the child gets when this program dies (Linux). 0: SIGKILL.
	DeathSignal syscall.Signal
}

// Process is a running or ended child. Its methods may be called from any goroutine.
type Process struct {
	name   string
	pid    int
	output *tail
	done   chan struct{} // closed when the child has ended and was reaped
	err    error         // written before done is closed
}

// Start starts the child. It returns as soon as the program runs; Wait, Done and Stop tell of its end.
func Start(o Options) (*Process, error) {
	p := &Process{name: filepath.Base(o.Path), output: &tail{next: o.Log}, done: make(chan struct{})}
	cmd := exec.Command(o.Path, o.Args...)
	cmd.Dir, cmd.Env = o.Dir, o.Env
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.WaitDelay, cmd.ExtraFiles = outputGrace, o.Files
	death := o.DeathSignal
	if death == 0 {
		death = syscall.SIGKILL
	}
	cmd.SysProcAttr = attributes(o.Credential, death)

	started := make(chan error)
	go func() {
		// C1: this thread is the one whose death the kernel reports to the child. Wait keeps it alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			p.err = err
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// PID is the process id; it stays the same after the end.
func (p *Process) PID() int { return p.pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the child has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err is the reason of the end (nil for exit status 0), with the last output. It blocks until the child has ended.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w%s", p.name, p.err, p.output.quote())
}

// Output is the end of what the child wrote, at most a few kilobytes, for error messages.
func (p *Process) Output() string { return p.output.String() }

// Signal sends a signal. A child that has ended is no error: it is what most signals ask for.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to %s (pid %d): %w", sig, p.name, p.pid, err)
	}
	return nil
}

// Stop asks the child to end with sig and waits; after grace it kills it. A stopped (SIGSTOP) child is continued, so that it
// hears the request. It is idempotent and returns an error only if the child is still there afterwards.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error {
	if err := errors.Join(p.Signal(sig), p.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	if p.wait(grace) {
		return nil
	}
	return p.Kill()
}

// Kill ends the child with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.wait(killWait + outputGrace) {
		return fmt.Errorf("%s (pid %d) is still there %v after SIGKILL", p.name, p.pid, killWait)
	}
	return nil
}

// Pause stops the child with SIGSTOP and waits until it stands still.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(p.pid)
}

// Resume continues a paused child.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

func (p *Process) wait(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}
