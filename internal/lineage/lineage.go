// Package lineage tells who has made what a commit has: the signers of all commits between one
// that is known and it.
package lineage

import "slices"

// Commit is a commit of a Line.
type Commit struct {
	Hash   string
	Root   bool   // it has no parent
	Signer string // who has signed the commit itself; "" if that is not known
}

// Line are commits each of which is the only parent of the next one: the newest is the last. It
// is immutable.
type Line []Commit

// maxCommits bounds a Line: of what is older it is not known who has made it.
const maxCommits = 100

// Extend returns the line of a commit that was fetched after those of l. Where others are
// between them, or it merges others, nothing is known of these: it is alone.
func (l Line) Extend(hash string, parents []string, signer string) Line {
	next := Commit{Hash: hash, Root: len(parents) == 0, Signer: signer}
	before := 0
	if n := l.index(hash); n >= 0 {
		before = n // its signer may be trusted only now
	} else if len(parents) == 1 {
		before = l.index(parents[0]) + 1
	}
	return append(slices.Clone(l[max(0, before+1-maxCommits):before]), next)
}

// Head is the hash of the newest commit, "" without any.
func (l Line) Head() string {
	if len(l) == 0 {
		return ""
	}
	return l[len(l)-1].Hash
}

func (l Line) index(hash string) int {
	return slices.IndexFunc(l, func(c Commit) bool { return c.Hash == hash })
}

// Since returns the commits that are newer than one of the line, or all that are known. It
// reports whether there are no others: without one ("") they go back to the first commit of all.
func (l Line) Since(base string) (commits Line, all bool) {
	if n := l.index(base); n >= 0 {
		return l[n+1:], true
	}
	return l, len(l) > 0 && l[0].Root
}

// Signers returns who has signed the commits, "" for each of which that is not known.
func (l Line) Signers() (out []string) {
	for _, c := range l {
		out = append(out, c.Signer)
	}
	return out
}

// Map returns the line with other names of its signers.
func (l Line) Map(name func(signer string) string) Line {
	out := slices.Clone(l)
	for n := range out {
		out[n].Signer = name(out[n].Signer)
	}
	return out
}
