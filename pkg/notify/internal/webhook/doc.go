// Package webhook posts signed CloudEvents as Standard Webhooks (https://www.standardwebhooks.com) says, and
// other bodies under the same rules: no redirect is followed, an answer is read to a bound, and an error shows
// neither the URL nor a key. It is what package notify and its sinks have in common.
//
// It starts no goroutine and keeps no state; what a client holds open is its owner's to close.
package webhook
