//go:build race

package policy_test

// raceDetector says that memory is not what it is without the race detector.
const raceDetector = true
