package lexical

import "sync/atomic"

// maxStates is how many states a machine may have, so that an id and two bits
// fit 32.
const maxStates = 1 << 28

// A directory finds what has an id without a lock. Ids come in order.
type directory[T any] struct {
	pages atomic.Pointer[[]*[64]*T]
}

// at is what was put under id. The caller has id from an atomic that was
// stored after put.
func (d *directory[T]) at(id uint32) *T { return (*d.pages.Load())[id>>6][id&63] }

// put tells how many bytes the directory has grown. One caller at a time.
func (d *directory[T]) put(id uint32, v *T) int {
	var pages []*[64]*T
	if p := d.pages.Load(); p != nil {
		pages = *p
	}

	if int(id>>6) == len(pages) {
		// The old slice is still read, but not beyond its length.
		pages = append(pages, new([64]*T))
		pages[id>>6][id&63] = v
		d.pages.Store(&pages)
		return 64*8 + 16
	}
	pages[id>>6][id&63] = v
	return 0
}
