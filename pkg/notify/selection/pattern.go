package selection

import (
	"path"
	"strings"
)

// pattern is a pattern of path.Match, which is slow for what most are: a name, or the beginning of some.
type pattern struct {
	form patternForm
	text string
}

type patternForm uint8

const (
	general patternForm = iota
	literal             // text is the name
	prefix              // text is the beginning, before a star
)

// newPattern compiles a pattern, or returns path.ErrBadPattern.
func newPattern(text string) (pattern, error) {
	if _, err := path.Match(text, ""); err != nil {
		return pattern{}, err
	}
	const special = `*?[\`
	if !strings.ContainsAny(text, special) {
		return pattern{literal, text}, nil
	}
	if begin, is := strings.CutSuffix(text, "*"); is && !strings.ContainsAny(begin, special) {
		return pattern{prefix, begin}, nil
	}
	return pattern{general, text}, nil
}

func (p *pattern) matches(name string) bool {
	switch p.form {
	case literal:
		return p.text == name
	case prefix:
		return strings.HasPrefix(name, p.text) && strings.IndexByte(name[len(p.text):], '/') < 0
	}
	ok, _ := path.Match(p.text, name) // newPattern has validated it
	return ok
}
