// Package message bounds text that others have written before people or programs see it.
package message

// MaxRunes bounds what is kept of a message: members write them.
const MaxRunes = 512

// Clip bounds a message that came from outside and takes control characters
// out.
func Clip(s string) string {
	out := make([]rune, 0, min(len(s), MaxRunes))
	for _, r := range s {
		if len(out) == MaxRunes {
			out[MaxRunes-1] = '…'
			break
		}
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}
