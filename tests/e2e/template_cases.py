"""Templates for each part of the language, over template_oracle.DATA. What jinja2 refuses stands
among the rest: the comparison asks for a refusal at the same stage."""

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
2 ** 3 ** 2
-2 ** 2
2 ** -1
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
1 / 0
1 // 0
1 % 0
0.0 / 0
1e400
0.1 + 0.2
1e16
1e15
123456789012345680.0
1e-4
1e-5
-0.0
5e-324
1.7976931348623157e308
2.0 ** 0.5
1_000 + 0x1F + 0b101 + 0o17
1_0.5e1_0
00
012
1.
.5
1.foo
9223372036854775807
9223372036854775807 + 1
true + 1
true and 1 or 2
'' or none or 0
1 and 2 and 0 and 3
not none
not not 1
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 > 0
1 == 1.0 == true
1 != 2 != 1
'a' < 'b'
'a' < 1
none < 1
[1, 2] < [1, 3]
(1, 2) < (1, 2, 3)
[1] < (2,)
{} < {}
'ell' in s
'x' not in s
1 in l
4 in l
'b' in d
'z' in d
none in mixed
[2] in mixed
[1] in d
1 in 'abc'
1 in 5
1 in nope
1 in none
n if b else m
n if c
(n if c) is defined
n if c else m if c else z
'a' ~ 1 ~ none ~ true ~ 1.0 ~ nope ~ [1, 'x']
'a' + 'b' + 'c'
'a' + 1
'a' * 3
3 * 'ab'
'ab' * -1
[1] * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'%s and %d' % ('x', 5)
'%s' % 5
'%s' % (5,)
'%s %s' % 5
'%5.2f|%-8s|%08d|%+d|% d|%x|%X|%o|%e|%g|%%' % (3.14159, 'ab', 42, 7, 7, 255, 255, 8, 12345.678, 0.0001)
'%(a)s-%(b)r' % {'a': 1, 'b': 'x'}
'%(a)s' % {'b': 1}
'%r %a' % ('x', 'y')
'%c%c' % ('x', 65)
'%*d' % (5, 42)
'%.2s' % 'abcdef'
'%d' % 3.99
'%d' % 'x'
'%d' % nope
'%s' % nope
'abc' % 1
'abc' % [1]
'abc' % {}
'%i' % true
'%q' % 1
'%' % 1
'%05.1f' % -2.5
'%#x' % 255
[]
[1, 'a', none, true, 1.0]
["it's", 'q"']
[1, [2, [3]], (4,), {5: 6}]
(1,)
()
(1, 2)
1, 2
{'a': 1, 'b': [1], 1: 2, none: 3, (1, 2): 4}
{1: 'a', 1.0: 'b', true: 'c'}
{[1]: 2}
{'a': 1,}
[1, 2,]
s[0]
s[-1]
s[99]
s[1:4]
s[:-3]
s[::-1]
s[::2]
s[5:1:-2]
s[-100:100]
s[::0]
u[7]
u[7:12]
u[::-1]
u|length
u|upper
u|lower
u|title
u|capitalize
u.swapcase()
u.casefold()
'ß'.title() ~ 'ß'.capitalize() ~ 'ŉ'|title ~ 'ǆ'.title()
'ΑΣ'|lower ~ 'ΑΣΑ'|lower
l[0]
l[5]
l[-1]
l[1:]
l['a']
l[1.0]
l[true]
l[none]
d['b']
d.b
d['nope']
d.nope
d.nope.more
d['nope']['more']
d.items
d['items']
d.items is callable
d.keys()|list
d.values()|list
d.items()|list
d.keys()
d.values()
o.items()
d.get('b')
d.get('nope')
d.get('nope', 5)
d.get()
d.a[1].k
d['a'][1]['k']
d.a.1.k
messages[1]['role']
messages[1].role
messages.1.role
(1, 2).0
none.foo
none['foo']
5 .foo
nope
nope.foo
nope['foo']
nope[0]
nope[1:]
nope()
nope + 1
-nope
nope == nope
nope == none
nope|length
nope|list
nope ~ 'x'
[nope]
nope|upper
nope|int
nope|float
nope|default('d')
nope.x|default('d')
x|default('d')
x|default('d', true)
e|default('d')
e|default('d', boolean=true)
e|d('d', true)
nope|d
s.upper()
s.upper
s.nope
s.upper(1)
s.__class__
s._x
d.__class__
''.__class__.__mro__
l.append(4)
l.append
l.pop()
d.update({'a': 1})
d.pop('a')
d.clear
l.index(2)
l.index(9)
l.count(1)
l.copy()
(1, 2, 1).count(1)
(1, 2, 1).index(2)
' x '.strip() ~ '|'
'xxaxx'.strip('x')
'abcabc'.lstrip('ab') ~ 'abcabc'.rstrip('bc')
'a,b,,c'.split(',')
'a b  c '.split()
'a b  c '.split(none, 1)
'a,b,c'.split(',', 1)
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.split(sep=',')
'a,b,c'.rsplit(',', 1)
' a b  c '.rsplit(none, 1)
'abc'.split('')
''.split()
''.split(',')
'a\nb\r\nc\x0bd\n'.splitlines()
'a\nb\n'.splitlines(true)
'abc'.startswith('ab')
'abc'.startswith(('x', 'a'))
'abc'.startswith('b', 1)
'abc'.startswith('c', 1, 2)
'abc'.startswith('', 3)
'abc'.startswith('', 4)
'abc'.endswith('bc')
'abc'.endswith(['c'])
'abc'.startswith(1)
'aXbX'.replace('X', 'y')
'aXbX'.replace('X', 'y', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'日本'.replace('', '-')
'aaa'.replace('aa', 'b')
'hello world'.title()
"they're bill's".title()
"they're bill's x-ray (foo) {bar} [baz] <qux>"|title
'hELLO'.capitalize()
'abcabc'.find('c')
'abcabc'.rfind('c')
'abcabc'.find('x')
'日本日'.find('日', 1)
'日本日'.rfind('日')
'abc'.index('x')
'aaaa'.count('aa')
'abc'.count('')
', '.join(['a', 'b'])
', '.join([1])
'-'.join('abc')
'-'.join({'x': 1})
'12'.isdigit() ~ 'a'.isdigit() ~ ''.isdigit() ~ '²'.isdigit() ~ '½'.isnumeric() ~ '²'.isdecimal()
'ab'.isalpha() ~ 'a1'.isalnum() ~ ' '.isspace() ~ 'AB'.isupper() ~ 'ab'.islower() ~ '1'.islower()
'abc'.isidentifier() ~ 'é'.isprintable() ~ '\n'.isprintable() ~ 'Ab Cd'.istitle() ~ 'é'.isascii()
'prefix'.removeprefix('pre') ~ 'prefix'.removesuffix('fix')
'-5'.zfill(5) ~ '5'.zfill(3) ~ 'abc'.zfill(2)
'a'.ljust(3, '.') ~ 'a'.rjust(3) ~ 'ab'.center(5, '*') ~ 'abc'.center(6, '*')
'a'.ljust(3, 'xy')
'a-b-c'.partition('-') ~ 'a-b-c'.rpartition('-')
'abc'.partition('-') ~ 'abc'.rpartition('-')
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a} {b}'.format(a=1, b=2)
'{} {0}'.format(1)
'{}'.format()
'{x}'.format()
'{{}} {}'.format(1)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+} {:x} {:#x} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567)
'{:.2f} {:e} {:g} {:%} {:10.3f}|'.format(3.14159, 1234.5, 0.00001, 0.25, 2.5)
'{!r} {!s}'.format('a', 'b')
'{0[a]} {0.a}'.format({'a': 1})
'{0[1]}'.format([1, 2])
'{:{}}'.format('a', 5) ~ '|'
'{'.format()
'}'.format()
'{:d}'.format('a')
'{:5}'.format(none)
'{:s}'.format(5)
'%s'|format(1)
'%s %s'|format('a', 'b')
'%(a)s'|format(a=1)
s|upper|lower|capitalize
' a '|trim ~ '|'
'xax'|trim('x')
'xax'|trim(chars='x')
5|upper
none|upper
s|replace('l', 'L')
s|replace('l', 'L', 1)
s|replace('l', 'L', count=1)
s|replace('l')
5|replace(5, 6)
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, false, true)
'a\nb\n\nc'|indent(width='> ', first=true)
5|indent
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar'|truncate(2)
'foo bar baz'|wordcount
'naïve don\'t 日本 a_b'|wordcount
'ab'|center(6) ~ '|'
'<a href="x">\'&'|e
'<a>'|escape|escape
'<a>'|e|forceescape
'<a>'|safe|e
'<b>'|e + '<i>'
'<i>' + ('<b>'|e)
('<b>'|safe) ~ '<i>'
('<b>'|safe)|upper
('%s'|safe) % 'x'
['<'|e]
[s|safe]
'a b/c?d=é&'|urlencode
{'a b': 'c/d', 'e': 1}|urlencode
[('a', 1), ('b', 'x y')]|urlencode
l|first
l|last
w|first
w|last
s|first
s|last
d|first
d|last
5|first
l|map('string')|first
l|map('string')|last
l|reverse|list
s|reverse
d|reverse|list
nope|reverse|list
5|reverse
l|sort
l|sort(reverse=true)
k|sort
k|sort(case_sensitive=true)
r|sort(attribute='v')
r|sort(attribute='n,v')
r|sort(attribute='n', reverse=true)
mixed|sort
s|sort
d|sort
k|unique|list
k|unique(true)|list
r|unique(attribute='n')|list
[[1]]|unique|list
l|min ~ l|max
w|min
k|min ~ k|max
r|max(attribute='v')
['a', 1]|min
l|sum
l|sum(start=10)
r|sum(attribute='v')
r|sum('v', 0.5)
k|sum
[[1], [2]]|sum(start=[])
[0.1, 0.2]|sum
w|sum
l|join
l|join(', ')
r|join(', ', attribute='n')
s|join('-')
5|join
mixed|join('|')
l|join(1)
d|dictsort
d|dictsort(by='value')
{'b': 1, 'A': 2}|dictsort
{'b': 1, 'A': 2}|dictsort(true)
{'b': 2, 'A': 1}|dictsort(false, 'value', true)
d|dictsort(by='x')
l|dictsort
d|items|list
nope|items|list
5|items
5|items|list
l|length ~ s|count ~ d|length
5|length
l|map('string')|length
l|list
s|list
d|list
5|list
l|batch(2)|list
l|batch(2, 'x')|list
l|batch(0)|list
l|slice(2)|list
l|slice(2, 'x')|list
l|slice(0)|list
r|groupby('n')
r|groupby('n', case_sensitive=true)
r|groupby('t.k', default=0)
(r|groupby('v')|first).grouper
(r|groupby('v')|first).list
r|map(attribute='n')|list
r|map(attribute='t.k')|list
r|map(attribute='t.k', default='-')|list
l|map('string')|list
k|map('upper')|join
k|map('replace', 'a', 'X')|list
l|map()|list
l|map('nope')|list
l|map('nope')
(l|map('nope')) is defined
r|map(attribute='n', foo=1)|list
[[1, 2], [3]]|map(attribute=0)|list
[[1, 2], [3]]|map('first')|list
none|map('upper')|list
5|map('upper')|list
l|select|list
l|select('odd')|list
l|select('gt', 1)|list
l|select('in', [1, 2])|list
l|reject('==', 1)|list
mixed|select('string')|list
mixed|select('nope')|list
r|selectattr('t')|list
r|selectattr('v', 'equalto', 1)|list
r|selectattr('v', '>', 1)|map(attribute='v')|list
r|rejectattr('t', 'defined')|list
r|selectattr('t.k', 'eq', 2)|list
r|selectattr()|list
messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list
messages|rejectattr('role', 'in', ['user', 'system'])|list|length
'5'|int + '0x1f'|int(0, 16) + '12'|int(base=8)
' 12 '|int
'1_000'|int
'12.9'|int
'x'|int
'x'|int(-1)
12.9|int
-12.9|int
none|int
none|int(5)
true|int
'1e3'|int
'inf'|int
'0b11'|int(0, 2)
'0o17'|int(0, 0)
'z'|int(0, 36)
'9'|int(5, 40)
'2.5'|float
'x'|float
'x'|float(1)
' 1e3 '|float
'1_0.5'|float
'nan'|float
'-inf'|float
5|float
none|float(2.5)
-5|abs
-2.5|abs
true|abs
'x'|abs
2.5|round
3.5|round
2.675|round(2)
1234.5678|round(-2)
7|round
7|round(1)
1250|round(-2)
1350|round(-2)
2.1|round(0, 'ceil')
2.9|round(method='floor')
2.55|round(1, 'floor')
2|round(0, 'x')
'a'|round
5|string + 'x'
none|string
1.0|string
[1]|string
d|attr('b')
s|attr('nope')
mixed|tojson
d|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='\t')
d|tojson(none)
d|tojson(sort_keys=true)
u|tojson(ensure_ascii=true)
u|tojson
q|tojson
d|tojson(separators=(',', ':'))
d|tojson(separators=(',',))
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1, 2): 3}|tojson
{2: 1, 'a': 2}|tojson(sort_keys=true)
[1e20, 1e16, 1e15, 0.1, -0.0, 1e-7, 3]|tojson
'nan'|float|tojson
['inf'|float, '-inf'|float]|tojson
(1, 2)|tojson
nope|tojson
[nope]|tojson
range(3)|tojson
range(3)|list|tojson
(l|select)|tojson
'\x00\x1f\x7f\u2028/<>&'|tojson
[]|tojson(indent=2) ~ {}|tojson(indent=2)
[[], {}]|tojson(indent=2)
l|tojson(indent=1, separators=('; ', '='))
s is string
s is not string
n is number and n is integer and f is float and b is boolean
b is number
b is integer
x is none
nope is undefined
nope is none
d is mapping and l is sequence and s is sequence and d is sequence
l is iterable and s is iterable
n is iterable
n is sequence
nope is sequence
nope is iterable
nope is callable
range is callable
d.items() is sequence
d.items() is iterable
3 is odd and 2 is even
-3 is odd
2.0 is even
'a' is odd
'%s' is odd
9 is divisibleby 3
9 is divisibleby(2)
9 is divisibleby 0
'abc' is lower and 'ABC' is upper
'a1' is lower
'1' is lower
5 is lower
b is sameas true
n is sameas b
x is sameas none
1 is in [1, 2]
1 is not in [1, 2]
1 is eq 1
1 is equalto(1)
1 is lt 2
1 is ge 2
'a' is gt 1
b is true
1 is true
c is false
'upper' is filter
'nope' is filter
'odd' is test
[1] is filter
'<'|e is escaped
1 is nope
1 is 1
1 is string is string
not x is none
x is not none
n is defined and n > 5
n is defined or nope.x
'a' 'b' "c"
'\x41\u00e9\U0001F600\101\n\t\\\'\"'
'\d\é\日\😀'
'\x4'
'\u12'
'\N{BULLET}'
'a\
b'
'unclosed
range(5)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(0)|list
range(5)
range(1, 10, 3)
range(5)[1:3]
range(5)[-1]
range(10)[::3]|list
range(5)[9]
range(3) == range(3)
3 in range(5)
range(100000)|length
range(100001)
range(1.5)
range()
range(1, 2, 0)
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1)])
dict(l)
namespace(a=1).a
namespace(a=1)
namespace({'a': 1}, b=2).b
namespace(a=1).nope
namespace(a=1)['a']
cycler('a', 'b').next()
cycler()
joiner(', ')()
lipsum is callable
raise_exception('no: ' ~ s)
raise_exception()
raise_exception(5)
strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %A %j %p %I %y %%')
strftime_now('%-d %e %f|%z|%Z|')
strftime_now(5)
s(1)
5()
(1)(2)
s.upper()()
l.0
l.-1
s|upper()
s|upper(1)
s|nope
s|nope.nope
s|default(*['x'])
nope|default(*['x'])
nope|default(**{'default_value': 'y'})
nope|default(**5)
range(*[1, 4])|list
range(*5)
dict(**{'a': 1}, **{'b': 2})
dict(a=1, a=2)
dict(**{'a': 1})
dict(a=1, **{'a': 2})
f(a=1, 2)
s.startswith(prefix='x')
s|trim(chars='H', foo=1)
((((((1))))))
[[[[[]]]]]
(1
[1
{1
1)
1]
1}
{1}
{'a' 1}
{'a': }
1 +
+ 1
* 1
1 ** 
a b
1 2
!
1 ! 2
a & b
a ? b
$x
a; b
=
a = b
is
if
not
in
{{ 1 }}
1 if
1 if 2 else
x if
if x
true.foo
True + False
None is none
e == ''
'a' == 'a' and 'a' != 'b'
[1, 2] == [1, 2.0]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
d == d
none == false
0 == false
'' == false
1 == '1'
nope == false
'b' > 'a' and 'é' > 'z'
[] and 1
{} or 'empty'
loop
loop.index
caller
varargs
messages[0]
messages[2].tool_calls[0].function.arguments
messages|map(attribute='role')|join(',')
messages[::-1]|map(attribute='role')|list
messages[1:]|length
(messages|selectattr('role', 'equalto', 'user')|list|last).content
messages|length - 1
'<' in q
q|tojson|safe
s[nope]
s[:nope]
s['upper']()
d['get']('b')
d.get.foo
1.5.is_integer()
[1, 2, 3][1:][0]
'abc'[1:][0]
{'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c
{'a': 1}.items()|list
[x for x in l]
lambda x: 1
x.y.z if x else 'none'
'a' if x is none else x.y
u ~ u[::-1] ~ u|length ~ u[3:-3]
'é'.upper() ~ 'İ'|lower|length
'\u00a0 x \u3000'|trim ~ '|'
'a\u2028b\x85c\x1cd'.splitlines()
'%s' % u ~ '%10s|' % 'é' ~ '%-4s|' % '日'
'%.3s|' % '日本語文'
'abc'|list|join('')
l|map('float')|map('int')|list
[3, none]|map('default', 'x', true)|list
['1', 'x', 2.5]|map('int', default=-1)|list
""".strip("\n")

# One a line, but for the string with a line end in it.
EXPRESSIONS = [line for line in EXPRESSIONS.replace("\\\nb'", "\\\0b'").split("\n")]
EXPRESSIONS = [line.replace("\0", "\n") for line in EXPRESSIONS]

TEMPLATES = [
    "", "\n", "\n\n", "a\n", "a\r\nb\rc\r\n", "{{ 'a\r\nb' }}", "{", "{ {", "}}", "%}", "#}", "{ % x",
    "{{", "{%", "{#", "{{ }}", "{% %}", "{##}", "{#-#}", "{#}", "{# a #} b", "{#- a -#}\n b",
    "a {#+ c +#} \n b", "{{ 1 -}}  \n x", " \n {{- 1 }}", "{{+ 1 }}", "{{ 1 +}}", "{{- -1 }}",
    "{%- if true -%} a {%- endif -%} b", "  {%+ if true %}a{% endif %}", "{% if true +%}\na{% endif %}",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc", "\t{% if true %}\n\tb\n\t{% endif %}",
    "x {% if true %}\ny\n{% endif %} z", "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n a {% endraw %}\nb",
    "{%- raw -%}\n a \n{%- endraw -%}\nb", "{% raw +%} x {% endraw %}", "{% raw %} x", "{% endraw %}",
    "{% raw %}{% raw %}{% endraw %}", "{% raw %}{# {{ {% endraw %}#}", "  {% raw %}\n  x\n  {% endraw %}\ny",
    "{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}}}", "{{ {'a': {'b': 1}} }}", "{{ ({}) }}",
    "{% if %}{% endif %}", "{% if 1 %}", "{% if 1 %}{% endfor %}", "{% endif %}", "{% else %}",
    "{% if 1 %}a{% else %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 1 %}b{% elif 2 %}c{% else %}d{% endif %}",
    "{% if 1, %}a{% endif %}", "{% if 0, 0 %}a{% endif %}", "{% if 1 %}:{% endif %}", "{% if 1: %}a{% endif %}",
    "{% if x is none %}N{% endif %}", "{% if a if b %}{% endif %}", "{% foo %}", "{% do l %}", "{% 1 %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
    "{% for i in l %}{{ i }},{% endfor %}", "{% for i in w %}x{% else %}none{% endfor %}",
    "{% for i in l %}x{% else %}none{% endfor %}", "{% for i in nope %}x{% else %}none{% endfor %}",
    "{% for i in none %}x{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, in [[1]] %}{{ a }}{% endfor %}", "{% for a in l, recursive %}{{ a }}{% endfor %}", "{% set a, = [1] %}{{ a }}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in l %}{% endfor %}", "{% for 1 in l %}{% endfor %}", "{% for true in l %}{% endfor %}",
    "{% for a.b in l %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{% endfor %}",
    "{% for i in l if i > 9 %}{{ i }}{% else %}no{% endfor %}", "{% for i in l if loop.index %}{% endfor %}",
    "{% for i in l if i == n %}{{ i }}{% else %}x{% endfor %}", "{% for i in l if i is odd %}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% set ns = namespace(c=0) %}{% for i in l if ns.c < 2 %}{% set ns.c = ns.c + 1 %}{{ i }}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in l|select %}{{ loop.last }}{{ loop.nextitem }}{{ loop.length }}{{ loop.revindex }};{% endfor %}",
    "{% for i in l|select %}{{ loop.length }}{{ i }}{% endfor %}", "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for i in l %}{{ loop.nope }}{{ loop._x }}{% endfor %}", "{% for i in l %}{{ loop }}{% endfor %}",
    "{% for i in l %}{% for j in k %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in k %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for i in l %}{{ loop(k) }}{% endfor %}", "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% for i in [[1, [2]], 3] recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for i in [{'n': 1, 'c': [{'n': 2}]}] recursive %}{{ i.n }}{% if i.c %}({{ loop(i.c) }}){% endif %}{% else %}e{% endfor %}",
    "{% for i in l if i > 1 recursive %}{{ i }}{{ loop.index }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% break %}{% else %}E{% endfor %}", "{% for i in l %}{% continue %}{% else %}E{% endfor %}",
    "{% for i in l %}{% if loop.index > 1 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% break %}", "{% continue %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in l %}{% for j in w %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}",
    "{% for i in l recursive %}{% else %}{% break %}{% endfor %}", "{% for i in l %}{% set y %}a{% break %}{% endset %}{% endfor %}z",
    "{% for i in l %}{% filter upper %}a{% continue %}{% endfilter %}{% endfor %}z", "{% for i in l %}{% with %}{% break %}{% endwith %}{% endfor %}",
    "{% for i in l %}{% call(x) m() %}{% break %}{% endcall %}{% endfor %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% set y = 1 %}{{ y }}", "{% set y = 1, 2 %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set (a, b) = (1, 2) %}{{ b }}",
    "{% set a = b = 1 %}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% set a.b = 2 %}", "{% set s.b = 2 %}", "{% set [a] = l %}", "{% set a[0] = 1 %}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns }}", "{% set ns = namespace(a=1) %}{% set ns.a, b = 2, 3 %}{{ ns.a }}{{ b }}",
    "{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set ns = {} %}{% set ns.a = 1 %}", "{% set y = 0 %}{% for i in l %}{% set y = y + i %}{{ y }}{% endfor %}{{ y }}",
    "{% for i in l %}{% set y = i %}{% endfor %}{{ y }}", "{% for i in l %}{% endfor %}{{ i }}", "{% set i = 9 %}{% for i in l %}{{ i }}{% endfor %}{{ i }}",
    "{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "{% if false %}{% set y = 1 %}{% endif %}{{ y }}", "{% if false %}{% set s = 1 %}{% endif %}{{ s }}",
    "{{ s }}{% set s = 'new' %}{{ s }}", "{% set s = s ~ '!' %}{{ s }}", "{{ y }}{% set y = 1 %}{{ y }}",
    "{% for i in l %}{{ y }}{% set y = i %}{{ y }}{% endfor %}", "{% for i in l %}{% if loop.first %}{% set y = 'f' %}{% else %}{% set y = 'o' %}{% endif %}{{ y }}{% endfor %}",
    "{% for i in l %}{% if i > 1 %}{% set s = i %}{% endif %}{{ s }};{% endfor %}", "{% for i in l %}{% if c %}{% elif b %}{% set s = i %}{% endif %}{{ s }};{% endfor %}",
    "{% set y %}a{{ n }}{% endset %}{{ y }}", "{% set y | upper %}abc{% endset %}{{ y }}", "{% set y | upper | replace('A', n) %}abc{% endset %}{{ y }}", "{% set y | default(zzz) %}{% endset %}",
    "{% set a, b %}xy{% endset %}{{ a }}-{{ b }}", "{% set ns = namespace() %}{% set ns.t %}text{% endset %}{{ ns.t }}", "{% set y %}{% set z = 5 %}{% endset %}{{ z }}",
    "{% macro m() %}x{% endmacro %}{{ m() }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=1, a=2) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(x=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m %}{% endmacro %}",
    "{% macro m(a.b) %}{% endmacro %}", "{% macro 1() %}{% endmacro %}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}",
    "{% macro m() %}{{ y }}{% set y = 1 %}{{ y }}{% endmacro %}{{ m() }}{{ y }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ i }}{% endmacro %}{% for i in l %}{{ m() }}{% endfor %}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=3) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% macro m() %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}", "{% macro m(caller=none) %}{{ caller() if caller }}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}",
    "{% call s %}{% endcall %}", "{% call s.upper() %}{% endcall %}", "{% call 5 %}{% endcall %}", "{% macro m() %}{% if caller %}y{% else %}n{% endif %}{% endmacro %}{{ m() }}",
    "{{ m }}{% macro m(a, b=1) %}{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}{{ m.nope }}", "{% macro m() %}{{ kwargs.x }}{% endmacro %}{{ m(x=1) }}", "{% set m = 1 %}{% macro m() %}x{% endmacro %}{{ m() }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    "{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner }}", "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') ~ m('b') }}{{ m('a')|length }}",
    "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q == 1 }}", "{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}", "{% with 1 = 2 %}{% endwith %}", "{% with a %}{% endwith %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}xax{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% filter %}{% endfilter %}", "{% filter indent(2) %}a\nb{% set q = 1 %}{% endfilter %}",
    "{% print 1 %}", "{% print 1, s %}", "{% print %}", "{% generation %}a{{ s }}{% endgeneration %}b", "{% generation %}{% set y = 1 %}{% endgeneration %}{{ y }}", "{% generation %}", "{% endgeneration %}",
    "{% if false %}{{ s|nope }}{% endif %}ok", "{% if true %}{{ s|nope }}{% endif %}ok", "{{ s|nope if false }}ok", "{% if s is nope %}{% endif %}", "{% for i in l %}{{ i|nope }}{% endfor %}", "{% if false %}{% for i in l %}{{ i|nope }}{% endfor %}{% endif %}",
    "{% set c1 = cycler('a', 'b') %}{{ c1.next() }}{{ c1.next() }}{{ c1.next() }}{{ c1.current }}{{ c1.reset() }}{{ c1.current }}", "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set it = l|map('string') %}{{ it|join }}{{ it|join }}", "{% set it = l|select %}{% for i in it %}{{ i }}{% endfor %}{% for i in it %}{{ i }}{% endfor %}", "{% set it = l|map('nope') %}ok", "{% for x in l|map('nope') %}{% endfor %}",
    "{% if (l|select('none')) %}true{% endif %}", "{{ raise_exception('stop') if false }}ok", "{% if n > 5 %}{{ raise_exception('n is ' ~ n) }}{% endif %}", "a{{ raise_exception('mid') }}b",
    "{% for message in messages %}{{ message.role }}: {{ message['content'] }}\n{% endfor %}", "{% for m in messages %}\n  {%- if m.content is none %}\n  none\n  {%- else %}\n  {{ m.content|trim }}\n  {%- endif %}\n{% endfor %}\n",
    "{% set messages = messages[1:] %}{{ messages|length }}", "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{{ system }}{{ loop_messages|length }}",
    "{{ s }}{{\n s\n}}", "{{ s # comment }}", "{# {{ #}{{ s }}", "a{# c #}\nb", "  {# c #}\n  b", "{{ 'a' }}\n{{ 'b' }}\n", "{% if true %}\n\n\nx{% endif %}\n\n", "{%if true%}x{%endif%}", "{{s}}{{-s-}}", "\u00a0{%- if true %}\u3000{%- endif %}", "é{{ 'é' }}日",
    "{{ '{{ x }}' }}{{ \"{% x %}\" }}", "{{ a.b.c.d }}", "{{ d.a.b.c }}", "{% set x = none %}{{ x.y }}", "{{ [1, 2, 3]\n   | join(',')\n   }}", "{% for a in l -%}\n  {{ a }}\n{%- endfor %}", "{% set été = 1 %}{{ été }}",
    "{% set _ = 1 %}{{ _ }}", "{% set __x__ = 1 %}{{ __x__ }}", "{% set class = 1 %}{{ class }}", "{% macro m(class=1, **k) %}{% endmacro %}", "{% macro m(class=1) %}{{ class }}{% endmacro %}{{ m(class=2) }}", "{% set if = 1 %}{{ if }}",
    "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in range(3) %}{% for j in range(i) %}{{ loop.parent }}{{ j }}{% endfor %}{% endfor %}",
]
