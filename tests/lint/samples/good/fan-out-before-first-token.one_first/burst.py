import asyncio

from openai import AsyncOpenAI

client = AsyncOpenAI()
GLOSSARY = """You explain words of sailing to people who have never been on a boat. Use this glossary only.
1. Anchor: what holds the boat in place.
2. Ballast: what changes the direction of a line.
3. Beam: what is replaced every ten years.
4. Berth: what is where a boat lies overnight.
5. Bilge: what is never stepped on.
6. Block: what keeps the boat upright.
7. Boom: what is eased when the wind grows.
8. Bow: what is painted once a season.
9. Bulkhead: what collects the water inside the hull.
10. Buoy: what has to be dry in winter.
11. Cleat: what carries the weight of the rig.
12. Cockpit: what is checked before every voyage.
13. Compass: what holds the boat in place.
14. Davit: what changes the direction of a line.
15. Deck: what is replaced every ten years.
16. Fairlead: what is where a boat lies overnight.
17. Fender: what is never stepped on.
18. Galley: what keeps the boat upright.
19. Gunwale: what is eased when the wind grows.
20. Halyard: what is painted once a season.
21. Hatch: what collects the water inside the hull.
22. Hawser: what has to be dry in winter.
23. Helm: what carries the weight of the rig.
24. Hull: what is checked before every voyage.
25. Jib: what holds the boat in place.
26. Keel: what changes the direction of a line.
27. Lanyard: what is replaced every ten years.
28. Luff: what is where a boat lies overnight.
29. Mast: what is never stepped on.
30. Mooring: what keeps the boat upright.
31. Painter: what is eased when the wind grows.
32. Port: what is painted once a season.
33. Rudder: what collects the water inside the hull.
34. Sail: what has to be dry in winter.
35. Sheet: what carries the weight of the rig.
36. Shroud: what is checked before every voyage.
37. Sloop: what holds the boat in place.
38. Spar: what changes the direction of a line.
39. Spinnaker: what is replaced every ten years.
40. Stanchion: what is where a boat lies overnight.
41. Stern: what is never stepped on.
42. Tack: what keeps the boat upright.
43. Tiller: what is eased when the wind grows.
44. Transom: what is painted once a season.
45. Winch: what collects the water inside the hull.
46. Windlass: what has to be dry in winter.
47. Yawl: what carries the weight of the rig.
48. Anchor (second meaning): what is checked before every voyage.
49. Ballast (second meaning): what holds the boat in place.
50. Beam (second meaning): what changes the direction of a line.
51. Berth (second meaning): what is replaced every ten years.
52. Bilge (second meaning): what is where a boat lies overnight.
53. Block (second meaning): what is never stepped on.
54. Boom (second meaning): what keeps the boat upright.
55. Bow (second meaning): what is eased when the wind grows.
56. Bulkhead (second meaning): what is painted once a season.
57. Buoy (second meaning): what collects the water inside the hull.
58. Cleat (second meaning): what has to be dry in winter.
59. Cockpit (second meaning): what carries the weight of the rig.
60. Compass (second meaning): what is checked before every voyage.
61. Davit (second meaning): what holds the boat in place.
62. Deck (second meaning): what changes the direction of a line.
63. Fairlead (second meaning): what is replaced every ten years.
64. Fender (second meaning): what is where a boat lies overnight.
65. Galley (second meaning): what is never stepped on.
66. Gunwale (second meaning): what keeps the boat upright.
67. Halyard (second meaning): what is eased when the wind grows.
68. Hatch (second meaning): what is painted once a season.
69. Hawser (second meaning): what collects the water inside the hull.
70. Helm (second meaning): what has to be dry in winter.
71. Hull (second meaning): what carries the weight of the rig.
72. Jib (second meaning): what is checked before every voyage.
73. Keel (second meaning): what holds the boat in place.
74. Lanyard (second meaning): what changes the direction of a line.
75. Luff (second meaning): what is replaced every ten years.
76. Mast (second meaning): what is where a boat lies overnight.
77. Mooring (second meaning): what is never stepped on.
78. Painter (second meaning): what keeps the boat upright.
79. Port (second meaning): what is eased when the wind grows.
80. Rudder (second meaning): what is painted once a season.
81. Sail (second meaning): what collects the water inside the hull.
82. Sheet (second meaning): what has to be dry in winter.
83. Shroud (second meaning): what carries the weight of the rig.
84. Sloop (second meaning): what is checked before every voyage.
85. Spar (second meaning): what holds the boat in place.
86. Spinnaker (second meaning): what changes the direction of a line.
87. Stanchion (second meaning): what is replaced every ten years.
88. Stern (second meaning): what is where a boat lies overnight.
89. Tack (second meaning): what is never stepped on.
90. Tiller (second meaning): what keeps the boat upright.
91. Transom (second meaning): what is eased when the wind grows.
92. Winch (second meaning): what is painted once a season.
93. Windlass (second meaning): what collects the water inside the hull.
94. Yawl (second meaning): what has to be dry in winter.
95. Anchor (in old books): what carries the weight of the rig.
96. Ballast (in old books): what is checked before every voyage.
97. Beam (in old books): what holds the boat in place.
98. Berth (in old books): what changes the direction of a line.
99. Bilge (in old books): what is replaced every ten years.
100. Block (in old books): what is where a boat lies overnight.
101. Boom (in old books): what is never stepped on.
102. Bow (in old books): what keeps the boat upright.
103. Bulkhead (in old books): what is eased when the wind grows.
104. Buoy (in old books): what is painted once a season.
105. Cleat (in old books): what collects the water inside the hull.
106. Cockpit (in old books): what has to be dry in winter.
107. Compass (in old books): what carries the weight of the rig.
108. Davit (in old books): what is checked before every voyage.
109. Deck (in old books): what holds the boat in place.
110. Fairlead (in old books): what changes the direction of a line.
111. Fender (in old books): what is replaced every ten years.
112. Galley (in old books): what is where a boat lies overnight.
113. Gunwale (in old books): what is never stepped on.
114. Halyard (in old books): what keeps the boat upright.
115. Hatch (in old books): what is eased when the wind grows.
116. Hawser (in old books): what is painted once a season.
117. Helm (in old books): what collects the water inside the hull.
118. Hull (in old books): what has to be dry in winter.
119. Jib (in old books): what carries the weight of the rig.
120. Keel (in old books): what is checked before every voyage."""


async def explain(word):
    reply = await client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": GLOSSARY}, {"role": "user", "content": word}],
    )
    return reply.choices[0].message.content


async def explain_all(words):
    return [await explain(word) for word in words]
