// Package alloctest measures work by what it allocates. Tests bound that, and
// not the time, which depends on the machine, its load and the race detector.
package alloctest

import (
	"fmt"
	"runtime"

	"github.com/toolsidecar/sidecar/internal/racetest"
)

// A Cost is what a piece of work allocates, freed or not.
type Cost struct{ Bytes, Objects uint64 }

// Of runs f once. What other goroutines allocate meanwhile counts, too, so
// bounds need room, and tests that measure must not be parallel ones.
func Of(f func()) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return Cost{after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs}
}

func (c Cost) String() string { return fmt.Sprintf("%d kB in %d objects", c.Bytes>>10, c.Objects) }

// Within tells whether c is at most bound in both. Under the race detector,
// which allocates as well and drops what a sync.Pool holds, bound is meant four
// times.
func (c Cost) Within(bound Cost) bool {
	if racetest.Enabled {
		bound.Bytes, bound.Objects = 4*bound.Bytes, 4*bound.Objects
	}
	return c.Bytes <= bound.Bytes && c.Objects <= bound.Objects
}
