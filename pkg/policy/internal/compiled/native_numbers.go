package compiled

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// integers calculates with integers. ok is false where the result is none, or too large.
func integers(f func(x, y int) (n int, ok bool)) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		if args[0].Kind() != value.Integer || args[1].Kind() != value.Integer {
			return leave()
		}
		n, ok := f(args[0].Int(), args[1].Int())
		return value.Int(n), ok
	}
}

func plus(x, y int) (int, bool) {
	n := x + y
	return n, (n > x) == (y > 0)
}

func difference(x, y int) (int, bool) {
	n := x - y
	return n, (n < x) == (y > 0)
}

func times(x, y int) (int, bool) {
	if x == 0 || y == 0 {
		return 0, true
	}
	if x == math.MinInt || y == math.MinInt { // whose negation overflows
		return 0, false
	}
	n := x * y
	return n, n/y == x
}

// quotient divides what divides exactly. Where x is 0, OPA's result may be -0.
func quotient(x, y int) (int, bool) {
	if x == 0 || y == 0 || x == math.MinInt || x%y != 0 {
		return 0, false
	}
	return x / y, true
}

// remainder has the sign of x, as OPA's has.
func remainder(x, y int) (int, bool) {
	if y == 0 {
		return 0, false
	}
	return x % y, true
}

var (
	minusIntegers = integers(difference)
	minusSets     = sets(subtract)
)

func minus(a *value.Arena, args []value.Value) (value.Value, bool) {
	if args[0].Kind() == value.Set {
		return minusSets(a, args)
	}
	return minusIntegers(a, args)
}

func abs(_ *value.Arena, args []value.Value) (value.Value, bool) {
	n := args[0].Int()
	return value.Int(max(n, -n)), args[0].Kind() == value.Integer && n != math.MinInt
}

// integer is what rounding an integer is.
func integer(_ *value.Arena, args []value.Value) (value.Value, bool) {
	return args[0], args[0].Kind() == value.Integer
}

func sum(_ *value.Arena, args []value.Value) (value.Value, bool) {
	v := args[0]
	if v.Kind() != value.Array && v.Kind() != value.Set || v.Len() > maxNativeElements {
		return leave()
	}
	total := 0
	for _, x := range v.Elems() {
		n, ok := plus(total, x.Int())
		if !ok || x.Kind() != value.Integer {
			return leave()
		}
		total = n
	}
	return value.Int(total), true
}

// formatInt writes integers in base 10.
func formatInt(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if args[0].Kind() != value.Integer || args[1].Kind() != value.Integer || args[1].Int() != 10 {
		return leave()
	}
	return value.Text(strconv.Itoa(args[0].Int())), true
}

func toNumber(_ *value.Arena, args []value.Value) (value.Value, bool) {
	switch v := args[0]; v.Kind() {
	case value.Null:
		return value.Int(0), true
	case value.Boolean:
		if v.IsTrue() {
			return value.Int(1), true
		}
		return value.Int(0), true
	case value.Integer:
		return v, true
	case value.String:
		n := value.Numeral(v.Str())
		return n, n.Kind() == value.Integer
	}
	return leave()
}

// maxAmount is the number of digits of an amount whose product with a milli is exact to the
// digits that OPA writes.
const maxAmount = 15

// amount splits a string into digits and what follows them, letters mostly. Numbers that
// begin with a 0 are left to OPA, which may see an octal one.
func amount(v value.Value) (n uint64, unit string, ok bool) {
	if v.Kind() != value.String || v.Len() > maxAmount+3 {
		return 0, "", false
	}
	s := v.Str()
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		n = n*10 + uint64(s[end]-'0')
		end++
	}
	if end == 0 || end > maxAmount || s[0] == '0' && end > 1 {
		return 0, "", false
	}
	return n, s[end:], true
}

// scaled is the integer n times factor.
func scaled(n, factor uint64) (value.Value, bool) {
	high, low := bits.Mul64(n, factor)
	if factor == 0 || high != 0 || low > math.MaxInt64 {
		return leave()
	}
	return value.Int(int(low)), true
}

func parseBytes(_ *value.Arena, args []value.Value) (value.Value, bool) {
	n, unit, ok := amount(args[0])
	if !ok || len(unit) > 3 {
		return leave()
	}
	binary := false
	if unit != "" && unit[len(unit)-1]|0x20 == 'b' {
		if unit = unit[:len(unit)-1]; unit == "" {
			return leave() // bytes have no unit
		}
	}
	if len(unit) == 2 && unit[1]|0x20 == 'i' {
		binary, unit = true, unit[:1]
	}
	return scaled(n, factor(unit, binary))
}

func parseUnits(_ *value.Arena, args []value.Value) (value.Value, bool) {
	n, unit, ok := amount(args[0])
	if !ok {
		return leave()
	}
	if unit == "m" {
		return milli(n)
	}
	binary := false
	if len(unit) == 2 && unit[1]|0x20 == 'i' {
		binary, unit = true, unit[:1]
	}
	return scaled(n, factor(unit, binary))
}

// factor is what a prefix stands for, 0 for none that is known.
func factor(unit string, binary bool) uint64 {
	if unit == "" {
		return 1
	}
	i := strings.IndexByte("kmgtpe", unit[0]|0x20)
	if i < 0 || len(unit) > 1 || unit[0] < 'A' {
		return 0
	}
	if binary {
		return 1 << (10 * (i + 1))
	}
	f := uint64(1000)
	for range i {
		f *= 1000
	}
	return f
}

// milli is n thousandths, which OPA writes with ten digits but for 0: it multiplies with
// the float next to 0.001.
func milli(n uint64) (value.Value, bool) {
	if n == 0 {
		return value.Int(0), true
	}
	if n > 1_000_000 {
		return leave()
	}
	var buf [24]byte
	b := append(strconv.AppendUint(buf[:0], n/1000, 10), '.', byte('0'+n/100%10), byte('0'+n/10%10), byte('0'+n%10))
	return value.Numeral(string(append(b, "0000000"...))), true
}
