// Package junit writes JUnit's XML as CI systems read it.
package junit
