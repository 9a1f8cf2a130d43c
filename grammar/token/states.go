package token

// States is how many states are known, and how many different masks they have.
func (g *Grammar) States() (states, masks int) {
	t := g.table.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byID {
		if s != nil {
			states++
		}
	}
	return states, len(t.masks)
}
