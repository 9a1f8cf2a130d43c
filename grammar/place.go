package grammar

// A place is where a text has come to. Within a long bounded string only the
// number of characters changes, so that it isn't part of the config: c stands
// for the loop at its minimum, and over is how many rounds more there have
// been. It is 0 everywhere else, and where the bound is nearer than a token
// may reach.
type place struct {
	c    *config
	over int32
}

// lone is the frame of the bounded loop over characters in which all of ts are
// or which they are just leaving, if it has reached its minimum.
func (p *program) lone(ts []thread) *frame {
	for _, t := range ts {
		f := t.top
		if f == nil || f.node >= 0 {
			continue
		}
		l := &p.loops[^f.node]
		if l.set == nil || l.max < 0 || f.count < l.min {
			continue
		}
		for _, o := range ts {
			if o.top != f && o.top != f.up {
				return nil
			}
		}
		return f
	}
	return nil
}

// move is where byte b leads; c is nil if it doesn't fit.
func (a *Automaton) move(p place, b byte) (place, error) {
	n, err := a.next(p.c, b)
	if n == nil || err != nil {
		return place{}, err
	}
	f := p.c.lone
	if f == nil {
		return place{n, 0}, nil
	}
	l := &a.p.loops[^f.node]
	switch g := n.lone; {
	case g == f:
		return place{n, p.over}, nil
	case g != nil && g.node == f.node && g.up == f.up:
		if f.count > l.min { // near the bound
			return place{n, 0}, nil
		}
		if l.max-l.min-p.over-1 > far {
			return place{a.lower(n), p.over + 1}, nil
		}
		return place{a.raise(n, p.over), 0}, nil
	case p.over == 0 || !n.within(f):
		return place{n, 0}, nil
	}
	n, err = a.next(a.raise(p.c, p.over), b)
	return place{n, 0}, err
}

// within tells whether a thread of c is still in the loop of f.
func (c *config) within(f *frame) bool {
	for _, t := range c.threads {
		for at := t.top; at != nil; at = at.up {
			if at.node == f.node && at.up == f.up {
				return true
			}
		}
	}
	return false
}

// exact is p as one config.
func (a *Automaton) exact(p place) *config {
	if p.over == 0 {
		return p.c
	}
	return a.raise(p.c, p.over)
}

// lower is c with its lone loop at the minimum.
func (a *Automaton) lower(c *config) *config {
	if low := c.low.Load(); low != nil {
		return low
	}
	low := a.raise(c, a.p.loops[^c.lone.node].min-c.lone.count)
	c.low.Store(low)
	return low
}

// raise is c with n more rounds of its lone loop.
func (a *Automaton) raise(c *config, n int32) *config {
	if n == 0 {
		return c
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	k := c.lone.frameKey
	k.count += n
	to := a.frame(k, c.lone.depth)
	a.set.reset()
	a.set.found = append(a.set.found, c.threads...)
	for i, t := range a.set.found {
		if t.top == c.lone {
			a.set.found[i].top = to
		}
	}
	return a.intern()
}
