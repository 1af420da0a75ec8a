// Package message bounds text that others have written before people or programs see it.
package message

import "federator.dev/federator/internal/clip"

// MaxBytes bounds what is kept of a message, in bytes: members write them.
const MaxBytes = 512

// Clip bounds a message that came from outside and takes control characters
// out.
func Clip(s string) string { return clip.Line(s, MaxBytes) }
