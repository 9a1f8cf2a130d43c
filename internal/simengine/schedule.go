package simengine

import (
	"container/list"
	"context"
	"sync"
)

// scheduler lets requests run, at most max at a time and while the cache has
// blocks for them; the others wait in the order of their arrival.
type scheduler struct {
	mu      sync.Mutex // guards what follows
	cache   *blockCache
	max     int
	running int
	queue   *list.List // of *waiter
}

type waiter struct {
	seq   *sequence
	ready chan struct{} // closed when seq was admitted
}

func newScheduler(cache *blockCache, maxRunning int) *scheduler {
	return &scheduler{cache: cache, max: maxRunning, queue: list.New()}
}

// admit returns when seq runs, with its lease and cached tokens set, or with
// the context's error.
func (s *scheduler) admit(ctx context.Context, seq *sequence) error {
	s.mu.Lock()
	if s.queue.Len() == 0 && s.try(seq) {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{seq, make(chan struct{})}
	e := s.queue.PushBack(w)
	s.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready: // admitted in the meantime
		s.cache.release(seq.lease)
		s.running--
	default:
		s.queue.Remove(e)
	}
	s.next()
	return ctx.Err()
}

func (s *scheduler) try(seq *sequence) bool {
	if s.running == s.max {
		return false
	}
	seq.lease, seq.cached = s.cache.acquire(seq.prompt, seq.salt, len(seq.prompt)+len(seq.output))
	if seq.lease == nil {
		return false
	}
	s.running++
	return true
}

// next admits who can run now.
func (s *scheduler) next() {
	for e := s.queue.Front(); e != nil && s.try(e.Value.(*waiter).seq); e = s.queue.Front() {
		close(e.Value.(*waiter).ready)
		s.queue.Remove(e)
	}
}

// advance accounts for the KV of tokens.
func (s *scheduler) advance(seq *sequence, tokens []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.grow(seq.lease, tokens)
}

func (s *scheduler) release(seq *sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.release(seq.lease)
	s.running--
	s.next()
}

func (s *scheduler) load() (running, waiting int, usage float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, s.queue.Len(), s.cache.usage()
}
