package limits

import (
	"math/big"
	"net/netip"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// digitsOf estimates the number of decimal digits of a number without its exponent.
func digitsOf(text string) int {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return len(text)
	}
	exponent, err := strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
	if err != nil {
		return MaxDigits + 1 // beyond an int, or no number
	}
	return i + max(exponent, -exponent)
}

// digits limits the numbers among the arguments.
func digits(args []*ast.Term) *Error {
	for _, a := range args {
		if n, ok := a.Value.(ast.Number); ok && len(n) > 4 && digitsOf(string(n)) > MaxDigits {
			return over("digits", MaxDigits)
		}
	}
	return nil
}

// digitsWithin limits the numbers of a collection.
func digitsWithin(args []*ast.Term) *Error {
	total := 0
	each(args[0].Value, func(v ast.Value) bool {
		if n, ok := v.(ast.Number); ok && len(n) > 4 {
			total = max(total, digitsOf(string(n)))
		}
		return total <= MaxDigits
	})
	return within("digits", total, MaxDigits)
}

// factors limits the digits that numbers of a collection have together, which is
// about what their product has. Nothing is lost to 0, 1 and -1.
func factors(args []*ast.Term) *Error {
	total := 0
	each(args[0].Value, func(v ast.Value) bool {
		if n, ok := v.(ast.Number); ok && n != "0" && n != "1" && n != "-1" {
			total += digitsOf(string(n))
		}
		return total <= MaxDigits
	})
	return within("digits", total, MaxDigits)
}

// numeral limits strings that are read as numbers, with a unit or without: what
// follows an e may be an exponent.
func numeral(args []*ast.Term) *Error {
	if e := digits(args); e != nil {
		return e
	}
	s, ok := args[0].Value.(ast.String)
	if !ok {
		return nil
	}
	if len(s) > MaxShort {
		return over("bytes of text", MaxShort)
	}
	for i := range len(s) {
		if s[i]|0x20 != 'e' {
			continue
		}
		digits := 0
		for _, c := range s[i+1:] {
			if c >= '0' && c <= '9' {
				digits++
			} else if c != '-' && c != '+' && c != '_' {
				break
			}
		}
		if digits > 3 {
			return over("digits", MaxDigits)
		}
	}
	return nil
}

// rangeSize limits numbers.range and numbers.range_step.
func rangeSize(args []*ast.Term) *Error {
	if e := digits(args); e != nil {
		return e
	}
	bound := func(i int) (*big.Rat, bool) {
		n, ok := args[i].Value.(ast.Number)
		if !ok {
			return nil, false
		}
		return new(big.Rat).SetString(string(n))
	}
	from, ok1 := bound(0)
	to, ok2 := bound(1)
	if !ok1 || !ok2 {
		return nil
	}
	size := from.Sub(to, from)
	size.Abs(size)
	if len(args) > 2 {
		if step, ok := bound(2); ok && step.Sign() > 0 {
			size.Quo(size, step)
		}
	}
	if size.Cmp(big.NewRat(MaxElements, 1)) >= 0 {
		return over("elements", MaxElements)
	}
	return nil
}

// addresses limits how many addresses a network expands to.
func addresses(args []*ast.Term) *Error {
	s, ok := args[0].Value.(ast.String)
	if !ok {
		return nil
	}
	if len(s) > MaxShort {
		return over("bytes of text", MaxShort)
	}
	address, bits, ok := strings.Cut(string(s), "/")
	ip, err := netip.ParseAddr(address)
	ones, errBits := strconv.Atoi(bits)
	if !ok || err != nil || errBits != nil {
		return nil // no network
	}
	if hosts := ip.BitLen() - ones; hosts > 16 {
		return over("addresses", 1<<16)
	}
	return nil
}

// merged limits net.cidr_merge, which sorts and compares neighbours.
func merged(args []*ast.Term) *Error {
	if n := length(args[0].Value); n > MaxElements/10 {
		return over("networks", MaxElements/10)
	}
	return weighed(0)(args)
}

// patch limits what a patched document can weigh: each copy can double it.
func patch(args []*ast.Term) *Error {
	var w weight
	if !w.add(args[0].Value) || !w.add(args[1].Value) {
		return w.exceeded()
	}
	copies := 0
	each(args[1].Value, func(v ast.Value) bool {
		if op, ok := v.(ast.Object); ok {
			if name := op.Get(opKey); name != nil && name.Value.Compare(opCopy) == 0 {
				copies++
			}
		}
		return true
	})
	if copies > 16 || w.elements<<copies > MaxElements || w.text<<copies > MaxText {
		return over("elements", MaxElements)
	}
	return nil
}

var (
	opKey  = ast.StringTerm("op")
	opCopy = ast.String("copy")
)
