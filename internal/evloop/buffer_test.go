package evloop

import "testing"

func TestBufferClasses(t *testing.T) {
	var p bufferPool
	for n := range maxPooled + 2 {
		b := p.get(n)
		if len(b) != 0 || cap(b) < n {
			t.Fatalf("get(%d) gave %d/%d", n, len(b), cap(b))
		}
		class := bufferClass(min(n, maxPooled))
		if n <= maxPooled && (cap(b) != classSize(class) || class > 0 && classSize(class-1) >= n) {
			t.Fatalf("get(%d) gave %d bytes", n, cap(b))
		}
		p.put(b)
	}
	if got, want := pooledBytes(&p), 1<<10+4<<10+16<<10+64<<10; got != want {
		t.Errorf("%d bytes are kept, want one buffer of each class: %d", got, want)
	}
}

// TestBufferPoolIsBounded: odd and large buffers are left to the garbage collector, and of the others only so many are kept.
func TestBufferPoolIsBounded(t *testing.T) {
	var p bufferPool
	for _, n := range []int{0, 100, minPooled - 1, minPooled + 1, 5000, maxPooled + 1, 32 << 20} {
		p.put(make([]byte, 0, n))
	}
	p.put(nil)
	if n := pooledBytes(&p); n != 0 {
		t.Errorf("%d bytes of odd sizes are kept", n)
	}
	for range 2000 {
		for class := range bufferClasses {
			p.put(make([]byte, 0, classSize(class)))
		}
	}
	if n := pooledBytes(&p); n != bufferClasses*maxIdleBytes {
		t.Errorf("%d bytes are kept", n)
	}
}

func TestConfig(t *testing.T) {
	for _, ok := range []Config{{}, {ReadBuffer: 1 << 20}, {LowWater: 2 << 20}, {HighWater: 10}, {KeepAlive: -1}, {YieldEvery: 100_000}} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for _, bad := range []Config{
		{ReadBuffer: 10}, {ReadBuffer: 1 << 30}, {MaxEvents: -1}, {LowWater: -1}, {LowWater: 2, HighWater: 1}, {KeepAlive: 1}, {YieldEvery: 1}, {YieldEvery: -1},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
		if l, err := New(bad); err == nil {
			l.Stop()
			t.Errorf("New accepts %+v", bad)
		}
	}
}
