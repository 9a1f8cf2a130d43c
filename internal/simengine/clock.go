package simengine

import (
	"context"
	"sync"
	"time"
)

// Clock is the time an engine lives in.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
}

// WallClock is real time.
type WallClock struct{}

func (WallClock) Now() time.Time { return time.Now() }

func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// VirtualClock moves only when it is told to. The zero value stands at year 1.
type VirtualClock struct {
	mu       sync.Mutex // guards what follows
	now      time.Time
	sleepers map[*sleeper]struct{}
	changed  chan struct{} // closed and renewed when sleepers change
}

type sleeper struct {
	until time.Time
	wake  chan struct{}
}

// NewVirtualClock returns a clock that stands at start.
func NewVirtualClock(start time.Time) *VirtualClock { return &VirtualClock{now: start} }

func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *VirtualClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c.mu.Lock()
	s := &sleeper{c.now.Add(d), make(chan struct{})}
	if c.sleepers == nil {
		c.sleepers = make(map[*sleeper]struct{})
	}
	c.sleepers[s] = struct{}{}
	c.notify()
	c.mu.Unlock()
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.sleepers, s)
		c.notify()
		c.mu.Unlock()
		return ctx.Err()
	}
}

func (c *VirtualClock) notify() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Advance moves the clock and wakes the sleepers whose time has come.
func (c *VirtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for s := range c.sleepers {
		if !s.until.After(c.now) {
			close(s.wake)
			delete(c.sleepers, s)
		}
	}
	c.notify()
}

// Await returns when exactly n sleepers wait, or with the context's error.
func (c *VirtualClock) Await(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		if len(c.sleepers) == n {
			c.mu.Unlock()
			return nil
		}
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
