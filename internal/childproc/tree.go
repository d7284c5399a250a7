package childproc

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// pollEvery is how often the state of a process is asked for while waiting for it.
const pollEvery = 2 * time.Millisecond

// stopWait bounds the wait for a SIGSTOP to take effect.
const stopWait = 5 * time.Second

// status is what the system says of a process.
type status struct {
	parent  int
	stopped bool
	zombie  bool // ended, not yet reaped by its parent
}

// PauseTree stops the child and then its direct children: first the one that could start more of them.
func (p *Process) PauseTree() error {
	if err := p.Pause(); err != nil {
		return err
	}
	pids, err := children(p.pid)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := signalPID(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		if err := waitStopped(pid); err != nil {
			return err
		}
	}
	return nil
}

// ResumeTree continues what PauseTree stopped, the children first.
func (p *Process) ResumeTree() error {
	pids, err := children(p.pid)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := signalPID(pid, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return p.Resume()
}

// KillTree ends the child and its direct children with SIGKILL, as a crash of the machine would, and waits until all are gone.
//
// The child is stopped first: it then neither starts more children nor reaps the killed ones, so that no process id can pass to
// a stranger before the signal is sent.
func (p *Process) KillTree() error {
	if !p.Running() {
		return nil
	}
	if err := p.Pause(); err != nil {
		return errors.Join(err, p.Kill())
	}
	pids, err := children(p.pid)
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	for _, pid := range pids {
		if err := signalPID(pid, syscall.SIGKILL); err != nil {
			return errors.Join(err, p.Kill())
		}
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return waitGone(pids)
}

// SignalTree sends a signal to a process, a child or not, and to its direct children, in an order in which none can start another meanwhile. It is
// for servers such as PostgreSQL, which stand still only if their children do.
func SignalTree(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, 0); err != nil {
		return fmt.Errorf("signal %v to pid %d: %w", sig, pid, err) // unlike its children, it must be there
	}
	if sig != syscall.SIGCONT {
		if err := signalPID(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		if err := waitStopped(pid); err != nil {
			return err
		}
	}
	pids, err := children(pid)
	if err != nil {
		return err
	}
	for _, p := range append(pids, pid) {
		if err := signalPID(p, sig); err != nil {
			return err
		}
	}
	return nil
}

func signalPID(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to pid %d: %w", sig, pid, err)
	}
	return nil
}

// children lists the direct children of pid that have not ended.
func children(pid int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var pids []int
	for child, st := range all {
		if st.parent == pid && !st.zombie {
			pids = append(pids, child)
		}
	}
	return pids, nil
}

// waitStopped returns when pid stands still or has ended.
func waitStopped(pid int) error {
	deadline := time.Now().Add(stopWait)
	for {
		st, found, err := process(pid)
		if err != nil {
			return err
		}
		if !found || st.stopped || st.zombie {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pid %d still runs %v after SIGSTOP", pid, stopWait)
		}
		time.Sleep(pollEvery)
	}
}

// waitGone returns when none of pids runs any more; they are not our children, so there is nothing to wait on but their state.
func waitGone(pids []int) error {
	deadline := time.Now().Add(killWait)
	for _, pid := range pids {
		for {
			st, found, err := process(pid)
			if err != nil {
				return err
			}
			if !found || st.zombie {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("pid %d is still there %v after SIGKILL", pid, killWait)
			}
			time.Sleep(pollEvery)
		}
	}
	return nil
}
