//! Short texts in several languages and programming languages, written for this program: enough to estimate bytes per token
//! to two digits, not three.

/// A text and its language.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub name: &'static str,
    pub text: &'static str,
}

pub const SAMPLES: &[Sample] = &[
    Sample {
        name: "English",
        text: "The mill stood at the bend of the river, where the water ran slowly in summer and flooded the meadow in March. \
Nobody knew who had built it. \"It was there before us,\" people said, and that was enough; in 1887 the wheel still turned.\n",
    },
    Sample {
        name: "German",
        text: "Die Mühle stand an der Biegung des Flusses, wo das Wasser im Sommer langsam floss und im März die Wiese überschwemmte. \
Niemand wusste, wer sie gebaut hatte. „Sie war vor uns da“, sagten die Leute, und das genügte; 1887 drehte sich das Rad noch.\n",
    },
    Sample {
        name: "French",
        text: "Le moulin se trouvait au coude de la rivière, là où l'eau coulait lentement en été et inondait le pré au mois de mars. \
Personne ne savait qui l'avait construit. « Il était là avant nous », disait-on, et cela suffisait ; en 1887 la roue tournait encore.\n",
    },
    Sample {
        name: "Spanish",
        text: "El molino estaba en el recodo del río, donde el agua corría despacio en verano e inundaba el prado en marzo. \
Nadie sabía quién lo había construido. «Estaba aquí antes que nosotros», decía la gente, y eso bastaba; en 1887 la rueda aún giraba.\n",
    },
    Sample {
        name: "Russian",
        text: "Мельница стояла у изгиба реки, где летом вода текла медленно, а в марте заливала луг. Никто не знал, кто её построил. \
«Она была здесь до нас», говорили люди, и этого хватало; в 1887 году колесо ещё вращалось.\n",
    },
    Sample {
        name: "Chinese",
        text: "磨坊立在河湾处，夏天水流缓慢，三月里河水漫过草地。没有人知道是谁建的。“它比我们先在这里”，人们这样说，这就够了；\
1887年，水轮还在转动。\n",
    },
    Sample {
        name: "Japanese",
        text: "水車小屋は川の曲がり角に立っていた。夏は水がゆっくり流れ、三月には草原が水に浸かった。誰が建てたのか知る人はいない。\
「私たちより前からあった」と人々は言い、それで十分だった。1887年にもまだ水車は回っていた。\n",
    },
    Sample {
        name: "Arabic",
        text: "كانت الطاحونة قائمة عند منعطف النهر، حيث يجري الماء ببطء في الصيف ويغمر المرج في شهر مارس. لم يكن أحد يعرف من بناها. \
كان الناس يقولون: «كانت هنا قبلنا»، وكان ذلك كافيا؛ وفي عام 1887 كانت العجلة ما تزال تدور.\n",
    },
    Sample {
        name: "Hindi",
        text: "चक्की नदी के मोड़ पर खड़ी थी, जहाँ गर्मियों में पानी धीरे बहता था और मार्च में घास के मैदान को डुबो देता था। \
किसी को नहीं पता था कि उसे किसने बनाया। लोग कहते थे, \"वह हमसे पहले से यहाँ थी\", और इतना काफ़ी था; 1887 में पहिया अब भी घूमता था।\n",
    },
    Sample {
        name: "Python",
        text: "def moving_average(values, width=3):\n    \"\"\"Means of neighbouring values.\"\"\"\n    if width < 1:\n        \
raise ValueError(f\"width is {width}\")\n    total = sum(values[:width])\n    for i in range(width, len(values)):\n        \
yield total / width\n        total += values[i] - values[i - width]\n    yield total / width\n",
    },
    Sample {
        name: "Rust",
        text: "impl Counter {\n    /// Adds one and returns the new count.\n    pub fn next(&mut self, key: &str) -> u64 {\n        \
let count = self.counts.entry(key.to_owned()).or_insert(0);\n        *count += 1;\n        *count\n    }\n}\n\n\
fn main() {\n    let mut mills = Counter::default();\n    assert_eq!(mills.next(\"mill\"), 1);\n}\n",
    },
    Sample {
        name: "JSON",
        text: "{\n  \"name\": \"mill\",\n  \"built\": null,\n  \"wheel\": {\"diameter_m\": 4.25, \"paddles\": 32, \"turning\": true},\n  \
\"years\": [1887, 1912, 1954],\n  \"url\": \"https://example.org/mills?id=17&lang=en\"\n}\n",
    },
    Sample {
        name: "numbers",
        text: "12 + 34 = 46\n128 * 4096 = 524288\n3.14159265 -0.001 1e-5 0x7f3a\n2026-11-21T17:05:09Z 192.168.0.1 +44 20 7946 0958\n",
    },
];

/// Texts that lose something in many tokenizers: spaces, line ends, marks on letters, rare characters.
pub const AWKWARD: &[Sample] = &[
    Sample {
        name: "line ends",
        text: "one\ntwo\n\nthree\n\n\nfour\n",
    },
    Sample {
        name: "CR LF",
        text: "one\r\ntwo\r\n",
    },
    Sample {
        name: "spaces",
        text: "a  b   c    d\n        e ",
    },
    Sample {
        name: "a space in front",
        text: " a",
    },
    Sample {
        name: "tabs",
        text: "a\tb\t\tc\n\td\n",
    },
    Sample {
        name: "capitals",
        text: "NASA iPhone McDonald",
    },
    Sample {
        name: "marks on letters",
        text: "é e\u{301} Å ﬁ ½",
    },
    Sample {
        name: "rare characters",
        text: "𝄞 ꙮ 🦙 👩‍👩‍👧 \u{a0}\u{200b}\u{feff}",
    },
    Sample {
        name: "control characters",
        text: "\u{0}\u{1}\u{7f}",
    },
];
