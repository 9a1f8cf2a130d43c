//go:build race

package retrieval

// raceDetector is on: sync.Pool then drops values at random.
const raceDetector = true
