"""Realistic functions: expressions of typical alerts on physical domains, with the correct verdict of each variable.

A line contains the kind, the expression and, for each variable, its name, domain and label: `=` constant,
`+` increasing, `-` decreasing, `v` quasiconvex, `!` has a peak. A function that is monotone in a direction that depends
on the other variables is quasiconvex.
"""

from __future__ import annotations

from typing import NamedTuple

WORDS = {"=": "constant", "+": "increasing", "-": "decreasing", "v": "quasiconvex", "!": "refuted"}


class Case(NamedTuple):
    kind: str
    expr: str
    domains: dict[str, tuple[float, float]]
    labels: dict[str, str]


_G = "(ln(h/100) + 17.62*a/(243.12+a))"
_DEW = f"243.12*{_G}/(17.62 - {_G})"
_HEAT = (
    "2.04901523*t + 10.14333127*r - 0.22475541*t*r - 0.00683783*t*t - 0.05481717*r*r + 0.00122874*t*t*r"
    " + 0.00085282*t*r*r - 0.00000199*t*t*r*r - 42.379"
)

_TEXT = f"""
condensation | ln(h/100) + 18.678*a/(257.14+a) - s | h:1:100:+ a:-40:60:+ s:-40:60:-
condensation | ln(h/100) + 17.62*a/(243.12+a) - 17.62*s/(243.12+s) | h:0.5:100:+ a:-40:60:+ s:-40:60:-
condensation | 6.112*exp(17.62*a/(243.12+a))*h/100 - 6.112*exp(17.62*s/(243.12+s)) | h:0:100:+ a:-40:60:+ s:-40:60:-
dew point | {_DEW} | h:5:95:+ a:-30:50:+
dew point | {_DEW} - s | h:5:95:+ a:-30:50:+ s:-40:60:-
dew point spread | a - {_DEW} | h:5:95:- a:-30:50:+
dew point spread | a - (100-h)/5 | h:0:100:+ a:-40:60:+
heat index | {_HEAT} | t:80:110:+ r:40:100:+
heat index | 0.5*(t + 61 + (t-68)*1.2 + r*0.094) | t:60:80:+ r:0:100:+
humidex | a + 0.5555*(6.11*exp(5417.753*(1/273.16 - 1/(273.15+d))) - 10) | a:0:50:+ d:-20:35:+
wind chill | 13.12 + 0.6215*t - 11.37*v**0.16 + 0.3965*t*v**0.16 | t:-40:10:+ v:5:100:-
wind chill | 5 - (13.12 + 0.6215*t - 11.37*v**0.16 + 0.3965*t*v**0.16) | t:-40:10:- v:5:100:+
wet bulb | t*tanh(0.151977*sqrt(h+8.313659)) + 0.00391838*h*sqrt(h)*tanh(0.023101*h) | t:0:50:+ h:5:99:+
vapour pressure deficit | 0.6108*exp(17.27*t/(t+237.3))*(1 - h/100) | t:0:50:+ h:0:100:-
vapour pressure deficit | 0.611*exp(17.3*l/(l+237)) - 0.611*exp(17.3*t/(t+237))*h/100 | l:0:50:+ t:0:50:- h:0:100:-
absolute humidity | 216.7*(h/100*6.112*exp(17.62*t/(243.12+t))/(273.15+t)) | h:0:100:+ t:-40:60:+
apparent power | sqrt(p**2 + q**2) | p:0:1000:+ q:-500:500:v
apparent power | sqrt(p*p + q*q) - s | p:0:1000:+ q:0:500:+ s:0:2000:-
power factor | p/sqrt(p*p + q*q) | p:1:1000:+ q:-500:500:!
power factor | 0.9 - p/sqrt(p*p + q*q) | p:1:1000:- q:-500:500:v
power factor | p/(u*i) | p:0:1000:+ u:200:250:- i:0.1:16:-
three phases | sqrt(3)*u*i*c | u:380:420:+ i:0:100:+ c:0.5:1:+
three phases | max(a, b, c) - min(a, b, c) | a:0:100:v b:0:100:v c:0:100:v
three phases | max(abs(a-m), abs(b-m), abs(c-m))/m | a:200:250:v b:200:250:v c:200:250:v m:200:250:v
joule | r*i*i | r:0:10:+ i:-50:50:v
voltage drop | u - r*i | u:0:400:+ r:0:5:v i:-100:100:-
Reynolds | rho*v*d/mu | rho:900:1100:+ v:0:10:+ d:0.01:2:+ mu:0.0003:0.002:-
Reynolds | rho*abs(v)*d/mu - 2300 | rho:900:1100:+ v:-10:10:v d:0.01:2:+ mu:0.0003:0.002:-
ideal gas | n*8.314*t/v | n:0:10:+ t:200:400:+ v:0.1:10:-
ideal gas | p*v/(8.314*t) - n | p:50000:200000:+ v:0.1:10:+ t:200:400:- n:0:100:-
ideal gas | abs(p*v - n*8.314*t) | p:0:200000:v v:0.1:10:v n:0:10:v t:200:400:v
van der Waals | 8.314*t/(v - 0.0000427) - 0.364/(v*v) | t:320:500:+ v:0.002:0.1:-
pressure and volume | p*v | p:0:10:+ v:0:5:+
pressure and volume | p*v - 20 | p:-1:10:+ v:0:5:v
pump efficiency | 9.81*q*h/p | q:0:100:+ h:0:80:+ p:1:200:-
pump efficiency | 0.6 - (0.8 - 0.0002*(q - 50)**2) | q:0:100:v
pump efficiency | 0.8 - 0.0002*(q - 50)**2 | q:0:100:!
pump efficiency | q*(100 - q)/2500*e | q:0:100:! e:0:1:+
pump head | 40 - 0.003*q*q - h | q:0:100:- h:0:60:-
pump head | h - (40 + 0.1*q - 0.003*q*q) | h:0:60:+ q:0:100:v
Bernoulli | p + 500*v*v + 9810*z | p:0:500000:+ v:-5:5:v z:0:100:+
Darcy | f*l/d*v*v/19.62 | f:0.005:0.1:+ l:0:1000:+ d:0.05:2:- v:0:5:+
orifice | c*a*sqrt(2*(p - q)/1000) | c:0.5:1:+ a:0:0.1:+ p:200000:300000:+ q:100000:200000:-
distance | sqrt((ax-bx)**2 + (ay-by)**2) | ax:0:100:v ay:0:100:v bx:0:100:v by:0:100:v
distance | (ax-bx)**2 + (ay-by)**2 - 25 | ax:0:100:v ay:0:100:v bx:0:100:v by:0:100:v
distance | abs(ax-bx) + abs(ay-by) | ax:0:100:v ay:0:100:v bx:0:100:v by:0:100:v
distance | 2 - sqrt((ax-bx)**2 + (ay-by)**2) | ax:0:100:! ay:0:100:! bx:0:100:! by:0:100:!
distance | max(abs(ax-bx), abs(ay-by)) | ax:0:100:v ay:0:100:v bx:0:100:v by:0:100:v
distance | sqrt((x-3)**2 + (y-4)**2 + z*z) | x:-10:10:v y:-10:10:v z:0:5:+
disagreement | abs(a - b) | a:-40:60:v b:-40:60:v
disagreement | abs(a - b) - 0.5 - 0.01*abs(a) | a:-40:60:v b:-40:60:v
disagreement | abs(a - b)/(abs(a) + abs(b) + 1) | a:0:100:v b:0:100:v
disagreement | (a - b)**2/2 | a:-40:60:v b:-40:60:v
relative deviation | abs(a - b)/b | a:0:100:v b:1:100:v
relative deviation | (a - b)/b | a:0:100:+ b:1:100:-
relative deviation | 100*abs(a/b - 1) - p | a:0:100:v b:1:100:v p:0:50:-
relative deviation | (a - b)/a | a:1:100:+ b:0:100:-
ratio | e/t | e:0:1000:+ t:1:100000:-
ratio | (e - b)/t | e:0:1000:+ b:0:1000:- t:1:100000:v
ratio | e/(e + o) | e:0:1000:+ o:1:1000:-
ratio | (e + 1)/(e + o + 2) | e:0:1000:+ o:0:1000:-
ratio | (e - b)/(t + 10) - 0.05 | e:0:1000:+ b:0:1000:- t:0:100000:v
ratio | (a - b)/(a + b) | a:1:100:+ b:1:100:-
ratio | a*b/(a + b) | a:1:100:+ b:1:100:+
ratio | (x*x + 1)/(x + 2) | x:-1:10:v
linear score | 0.3*a + 0.5*b - 0.2*c - 4 | a:0:10:+ b:0:10:+ c:0:10:-
linear score | 2*a - 3*b + 0*c | a:0:10:+ b:0:10:- c:0:10:=
logistic score | 1/(1 + exp(0 - (0.8*a - 1.2*b + 3))) | a:0:10:+ b:0:10:-
logistic score | 1/(1 + exp(4 - 0.1*t - 0.02*p)) - 0.9 | t:0:100:+ p:0:500:+
logistic score | ln(1 + exp(a - b)) | a:-50:50:+ b:-50:50:-
logistic score | exp(a)/(exp(a) + exp(b)) | a:-20:20:+ b:-20:20:-
weighted sum | (w*a + v*b)/(w + v) | w:1:10:v v:1:10:v a:0:100:+ b:0:100:+
weighted sum | 0.2*a + 0.3*b + 0.5*max(a, b) | a:0:100:+ b:0:100:+
weighted sum | w*a + (1 - w)*b | w:0:1:v a:0:100:+ b:0:100:+
quadratic | x*x - 4*x + 3 | x:-10:10:v
quadratic | x*x - 4*x + 3 | x:2:10:+
quadratic | x*x - 4*x + 3 | x:-10:2:-
quadratic | 3 + 4*x - x*x | x:-10:10:!
quadratic | a*x*x + b*x | a:0:3:+ x:0:10:v b:-5:5:+
quadratic | x*x + x*y + y*y | x:-5:5:v y:-5:5:v
quadratic | 0.5*x**2 - 2*x*y + 3*y**2 | x:-5:5:v y:-5:5:v
cubic | x**3 - 3*x | x:1:5:+
cubic | x**3 - 3*x | x:-1:1:-
cubic | x**3 - 3*x | x:-2:2:!
cubic | x**3 - 3*x | x:-1:3:v
cubic | x**3 + x - y**3 | x:-10:10:+ y:-10:10:-
cubic | x**3 - 3*x*x + 3*x - 1 | x:-10:10:+
Arrhenius | 1e9*exp(0 - e/(8.314*t)) | e:40000:80000:- t:250:600:+
Arrhenius | c*1e6*exp(0 - 6000/t) - q | c:0:10:+ t:250:600:+ q:0:100:-
decay | n*exp(0 - 0.1*t) | n:0:1000:+ t:0:100:-
decay | n*exp(0 - k*t) - l | n:0:1000:+ k:0:1:- t:0:100:- l:0:100:-
decay | t*exp(0 - t/10) | t:0:100:!
decay | n*0.5**(t/h) | n:0:1000:+ t:0:100:- h:1:50:+
logarithmic ratio | ln(a/b) | a:1:1000:+ b:1:1000:-
logarithmic ratio | abs(ln(a/b)) | a:1:1000:v b:1:1000:v
logarithmic ratio | 20*log10(a/b) - 3 | a:0.001:10:+ b:0.001:10:-
logarithmic ratio | ln(a) + 1/a | a:0.1:10:v
logarithmic ratio | a*ln(a/b) - a + b | a:0.1:100:v b:0.1:100:v
entropy | 0 - p*ln(p) - (1-p)*ln(1-p) | p:0.01:0.99:!
z-score | (x - 21.5)/0.8 - 3 | x:-40:60:+
z-score | abs(x - 21.5)/0.8 | x:-40:60:v
z-score | abs(x - m)/s | x:0:100:v m:0:100:v s:0.5:10:-
z-score | ((x - 20)/2)**2 + ((y - 50)/5)**2 | x:0:40:v y:0:100:v
saturating | tanh(x/10) - y | x:-50:50:+ y:-1:1:-
saturating | v*s/(k + s) | v:0:10:+ s:0:100:+ k:0.5:20:-
saturating | v*s**2/(k**2 + s**2) | v:0:10:+ s:0:100:+ k:0.5:20:-
saturating | v*s/(k + s + s*s/50) | v:0:10:+ s:0:100:! k:0.5:20:-
saturating | 1 - exp(0 - x/5) | x:0:50:+
saturating | x/sqrt(1 + x*x) | x:-20:20:+
saturating | min(x, 80) - min(y, 70) | x:0:100:+ y:0:100:-
tariff | where(k <= 100, 0.2*k, 20 + 0.35*(k - 100)) | k:0:1000:+
tariff | where(k <= 100, 0.2*k, 0.15*k) | k:0:1000:!
tariff | where(k <= 100, 0.2*k, where(k <= 500, 20 + 0.3*(k-100), 140 + 0.5*(k-500))) - b | k:0:2000:+ b:0:500:-
tariff | floor(m/15)*p | m:0:600:+ p:0.1:5:+
tariff | ceil(m/60)*2.5 + 0.1*k | m:0:600:+ k:0:100:+
tariff | where(h >= 22, 0.5*p, p) | h:0:24:- p:0:10:+
tariff | x - floor(x) | x:0:10:!
dead band | max(abs(x - 21) - 1, 0) | x:0:40:v
dead band | where(abs(x - s) < 0.5, 0, abs(x - s)) | x:0:40:v s:15:25:v
dead band | where(x < 18, 18 - x, where(x > 24, x - 24, 0)) | x:0:40:v
dead band | where(abs(x - s) < 0.5, abs(x - s), 0) | x:0:40:! s:15:25:!
largest margin | max(t - 80, p - 5, 2 - f) | t:0:150:+ p:0:10:+ f:0:10:-
largest margin | max(t - 80, 10 - t) | t:-40:150:v
largest margin | max((t - 80)/80, (p - 5)/5, abs(x)) | t:0:150:+ p:0:10:+ x:-5:5:v
largest margin | t > 80 or p > 5 or f < 2 | t:0:150:+ p:0:10:+ f:0:10:-
smallest margin | min(t - 80, p - 5) | t:0:150:+ p:0:10:+
smallest margin | min(t - 10, 80 - t) | t:0:150:!
smallest margin | min(abs(x - 3), abs(x + 3)) | x:-10:10:!
smallest margin | t > 80 and p >= 5 and f < 2 | t:0:150:+ p:0:10:+ f:0:10:-
smallest margin | min(max(x, y), z) | x:0:10:+ y:0:10:+ z:0:10:+
product | x*y | x:-1:1:v y:-1:1:v
product | x*y*z | x:-1:1:v y:-1:1:v z:0:1:v
product | (x - 5)*(y - 5) | x:0:10:v y:0:10:v
product | (x - 2)*(x - 5) | x:0:10:v
product | (2 - x)*(x - 5) | x:0:10:!
product | (t - 20)*(80 - h)/100 | t:-10:50:v h:0:100:v
valleys | abs(x - 1) + abs(x - 5) | x:-10:10:v
valleys | sqrt(abs(x - 1)) + sqrt(abs(x - 5)) | x:-10:10:!
valleys | (x - 1)**2 + (x - 5)**2 + y | x:-10:10:v y:0:1:+
valleys | tanh((x - 1)**2) + tanh((x - 5)**2) | x:-10:10:!
spike | x + 5*max(0, 1 - 1000000*abs(x - 37.123)) | x:0:100:!
spike | x - 0.01*x*x*0 + exp(0 - ((x - 50)*1000)**2) | x:0:100:!
spike | y + max(0, 1 - 1000*abs(x - 7)) | x:0:100:! y:0:1:+
spike | where(x > 49.9999, where(x < 50.0001, 1, 0), 0) | x:0:100:!
plateau | max(x, 5) | x:0:10:+
plateau | max(min(x, 8), 2) - max(min(y, 8), 2) | x:0:10:+ y:0:10:-
plateau | min(max(abs(x) - 1, 0), 3) | x:-10:10:v
plateau | floor(abs(x)) | x:-10:10:v
pole | 1/(x - 1) | x:1.0001:10:-
pole | 1/(10 - x) + y | x:0:9.999:+ y:0:1:+
pole | 1/x + x | x:0.001:10:v
pole | ln(x) - ln(1 - x) | x:0.000001:0.999999:+
pole | 1/(1 - u) - 1/m | u:0:0.999:+ m:0.1:10:+
unused | x - x + y | x:0:10:= y:0:10:+
unused | 0*x + sin(0)*y | x:0:10:= y:0:10:=
constant | min(x, 20) - 3 | x:30:40:=
constant | where(x > 0 - 1, 7, x) + y | x:0:10:= y:0:10:+
constant | floor(x/100) + y | x:10:90:= y:0:10:+
""".replace("\\\n", "")


def _case(line: str) -> Case:
    kind, expr, columns = (part.strip() for part in line.split(" | "))
    fields = [column.split(":") for column in columns.split()]
    domains = {name: (float(low), float(high)) for name, low, high, _ in fields}
    return Case(kind, expr, domains, {name: WORDS[label] for name, _, _, label in fields})


CASES = tuple(_case(line) for line in _TEXT.strip().splitlines())
